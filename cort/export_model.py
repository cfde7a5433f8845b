"""Turn a trained encoder or re-ranker into a folder for others: sentence-transformers' layout, with a model card.

Safetensors and JSON, no code. It loads as a ``SentenceTransformer`` and gives the vectors of the stage `encode`, for
queries and passages, or as a ``CrossEncoder`` and gives the logits of the stage `score`.

Reads:  a model folder, what its training data's filters counted, measures
Writes: the folder, with README.md

Usage:  python -m cort.export_model --model encoders/cort/best --name cort --dataset msmarco
            --settings '{"pooling": "cls"}' --counts train=triples/cort.train.json
            --measures-files measures/dev/cort.json --output models/cort
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cort.formats.cleaning import Form
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.system.options import optional, required

log = logging.getLogger(__name__)

CARD = "README.md"
SIMILARITIES = {
    "angular": "cosine, which ranks as their angle does",
    "cosine": "cosine",
    "inner_product": "inner product",
}
LONG_QUERIES = (
    "Queries are cut to {length} tokens in training and in the measures here; this folder has only the limit of the "
    "pair. Cut longer queries yourself."
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    model: str = required("FOLDER", "what `train` or `train_reranker` wrote")
    name: str = required(help="of the model")
    dataset: str = required("NAME", "what it was trained on")
    cleaning: Form = optional("raw", "what was done to texts before they were tokenized")
    hub_name: str | None = optional(None, "the hub's name of the base model, if it has one", "NAME")
    revision: str | None = optional(None, "commit of the hub repository")
    settings: str = optional("{}", "for the card: those it was trained with", "JSON")
    counts: tuple[str, ...] = optional((), "for the card: counts of the examples of a split", "SPLIT=JSON")
    measures_files: tuple[str, ...] = optional((), "for the card: of `evaluate`", "JSON")
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Load the model, write the folder whole or not at all."""
    from cort.formats.artifacts import parse_assignments
    from cort.models.cross_encoder import SETTINGS as PAIR_SETTINGS
    from cort.models.encoder import SETTINGS
    from cort.reporting.inputs import read_filter, read_measures
    from cort.reporting.model_card import Card, card_text

    model = Path(options.model)
    kinds = {"encoder": SETTINGS, "reranker": PAIR_SETTINGS}
    kind = next((kind for kind, name in kinds.items() if (model / name).is_file()), None)
    if kind is None:
        expected = "a folder that `train` or `train_reranker` wrote"
        raise input_error(model, f"neither {SETTINGS} nor {PAIR_SETTINGS}", expected, "name best/ or last/")
    said: dict[str, Any] = {
        "name": options.name,
        "kind": kind,
        "dataset": options.dataset,
        "form": options.cleaning,
        "base": options.hub_name,
        "revision": options.revision,
        "settings": cli.json_object("--settings", options.settings),
        "filters": [read_filter(*pair) for pair in parse_assignments("--counts", options.counts).items()],
        "measures": read_measures(options.measures_files),
    }
    with atomic_folder(options.output) as folder:
        more = _write_model(kind, model, options.cleaning, folder)
        (folder / CARD).write_text(card_text(Card(**said, **more)), encoding="utf-8", newline="\n")
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        log.info("%s %s: %d files, %d bytes", kind, options.name, len(sizes), sum(sizes))


def _write_model(kind: str, model: Path, text: str, folder: Path) -> dict[str, Any]:
    """Write all but the card; what it is to say of the model itself."""
    from cort.models.encoder import load_encoder
    from cort.models.export import Source, write_cross_encoder, write_encoder
    from cort.models.rerankers import load_reranker

    if kind == "reranker":
        reranker, template = load_reranker(model)
        write_cross_encoder(reranker, Source(model, template, text), folder)
        return {"size": 1, "notes": [LONG_QUERIES.format(length=reranker.settings.query_length)]}
    encoder, template = load_encoder(model)
    write_encoder(encoder, Source(model, template, text), folder)
    return {"size": encoder.settings.dimension, "similarity": SIMILARITIES[encoder.settings.similarity]}


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

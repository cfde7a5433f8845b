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

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cort.formats.cleaning import FORMS
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder

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


def build_parser() -> argparse.ArgumentParser:
    """Describe the command line."""
    parser = cli.make_parser("cort.export_model", __doc__)
    parser.add_argument("--model", required=True, metavar="FOLDER", help="what `train` or `train_reranker` wrote")
    parser.add_argument("--name", required=True, help="of the model")
    parser.add_argument("--dataset", required=True, metavar="NAME", help="what it was trained on")
    parser.add_argument(
        "--cleaning", choices=FORMS, default="raw", help="what was done to texts before they were tokenized"
    )
    parser.add_argument("--hub-name", metavar="NAME", help="the hub's name of the base model, if it has one")
    parser.add_argument("--revision", help="commit of the hub repository")
    parser.add_argument("--settings", default="{}", metavar="JSON", help="for the card: those it was trained with")
    parser.add_argument(
        "--counts", nargs="*", default=[], metavar="SPLIT=JSON", help="for the card: counts of the examples of a split"
    )
    parser.add_argument("--measures-files", nargs="*", default=[], metavar="JSON", help="for the card: of `evaluate`")
    parser.add_argument("--output", required=True, metavar="FOLDER")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Load the model, write the folder whole or not at all."""
    from cort.formats.artifacts import parse_assignments
    from cort.models.cross_encoder import SETTINGS as PAIR_SETTINGS
    from cort.models.encoder import SETTINGS
    from cort.reporting.inputs import read_filter, read_measures
    from cort.reporting.model_card import Card, card_text

    model = Path(args.model)
    kinds = {"encoder": SETTINGS, "reranker": PAIR_SETTINGS}
    kind = next((kind for kind, name in kinds.items() if (model / name).is_file()), None)
    if kind is None:
        expected = "a folder that `train` or `train_reranker` wrote"
        raise input_error(model, f"neither {SETTINGS} nor {PAIR_SETTINGS}", expected, "name best/ or last/")
    said = {
        "name": args.name,
        "kind": kind,
        "dataset": args.dataset,
        "form": args.cleaning,
        "base": args.hub_name,
        "revision": args.revision,
        "settings": cli.json_object("--settings", args.settings),
        "filters": [read_filter(*pair) for pair in parse_assignments("--counts", args.counts).items()],
        "measures": read_measures(args.measures_files),
    }
    with atomic_folder(args.output) as folder:
        more = _write_model(kind, model, args.cleaning, folder)
        (folder / CARD).write_text(card_text(Card(**said, **more)), encoding="utf-8", newline="\n")
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        log.info("%s %s: %d files, %d bytes", kind, args.name, len(files), sum(path.stat().st_size for path in files))


def _write_model(kind: str, model: Path, text: str, folder: Path) -> dict[str, Any]:
    """Write all but the card; what it is to say of the model itself."""
    from cort.models.cross_encoder import load_cross_encoder
    from cort.models.encoder import load_encoder
    from cort.models.export.layout import Source, write_cross_encoder, write_encoder

    if kind == "reranker":
        reranker, template = load_cross_encoder(model)
        write_cross_encoder(reranker, Source(model, template, text), folder)
        return {"size": 1, "notes": [LONG_QUERIES.format(length=reranker.settings.query_length)]}
    encoder, template = load_encoder(model)
    write_encoder(encoder, Source(model, template, text), folder)
    return {"size": encoder.settings.dimension, "similarity": SIMILARITIES[encoder.settings.similarity]}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

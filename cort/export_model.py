"""Export a trained encoder or re-ranker in sentence-transformers' layout, with a model card.

The folder has safetensors and JSON, no code. It loads as a ``SentenceTransformer`` that gives the vectors of the stage
`encode`, or as a ``CrossEncoder`` that gives the logits of the stage `score`.

Reads:  a model folder, counts of its training examples, measures
Writes: the folder, with README.md

Usage:  python -m cort.export_model --model encoders/cort/best --name cort --dataset msmarco
            --settings '{"pooling": "cls"}' --counts train=triples/cort.train.json
            --measures-files measures/dev/cort.json --output models/cort
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from cort.formats.cleaning import Form
from cort.models.settings import EncoderSettings, PairSettings
from cort.settings.models import BaseModel
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.system.options import optional, options_class, required

log = logging.getLogger(__name__)

CARD = "README.md"
FIX = "remove it from exports: only encoders and cross-encoders have a layout in sentence-transformers"


@options_class
class Options:
    """Options of this stage."""

    model: str = required("FOLDER", "written by `train` or `train_reranker`")
    name: str = required(help="of the model")
    dataset: str = required("NAME", "on which it was trained")
    cleaning: Form = optional(BaseModel.cleaning, "how texts were cleaned before tokenization")
    hub_name: str | None = optional(None, "name of the base model on a hub, if it has one", "NAME")
    revision: str | None = optional(None, "commit of the hub repository")
    settings: str = optional("{}", "for the card: settings of the training", "JSON")
    counts: tuple[str, ...] = optional((), "for the card: counts of the examples of a split", "SPLIT=JSON")
    measures_files: tuple[str, ...] = optional((), "for the card: of `evaluate`", "JSON")
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Load the model, write the folder atomically."""
    from cort.formats.artifacts import json_option, parse_assignments, read_artifact
    from cort.reporting.inputs import read_measures
    from cort.reporting.model_card import Card, card_text

    model = Path(options.model)
    files = {"encoder": EncoderSettings.FILE, "reranker": PairSettings.FILE}
    kind = next((kind for kind, name in files.items() if (model / name).is_file()), None)
    if kind is None:
        expected = "a folder that `train` or `train_reranker` wrote"
        raise input_error(model, f"neither {' nor '.join(files.values())}", expected, "name best/ or last/")
    card = Card(
        name=options.name,
        dataset=options.dataset,
        form=options.cleaning,
        base=options.hub_name,
        revision=options.revision,
        settings=json_option("--settings", options.settings),
        filters={
            split: read_artifact(path, dict[str, int])
            for split, path in parse_assignments("--counts", options.counts).items()
        },
        measures=read_measures(options.measures_files),
    )
    with atomic_folder(options.output, recorded=False) as folder:
        settings = _write_model(kind, options, folder)
        (folder / CARD).write_text(card_text(card, settings), encoding="utf-8", newline="\n")
        sizes = [path.stat().st_size for path in folder.rglob("*") if path.is_file()]
        log.info("%s %s: %d files, %d bytes", kind, options.name, len(sizes), sum(sizes))


def _write_model(kind: str, options: Options, folder: Path) -> EncoderSettings | PairSettings:
    """Write everything but the card."""
    from cort.models.cross_encoder import CrossEncoder
    from cort.models.encoder import load_encoder
    from cort.models.export import Source, write_cross_encoder, write_encoder
    from cort.models.rerankers import load_reranker

    path = Path(options.model)
    if kind == "reranker":
        reranker, template = load_reranker(path)
        if not isinstance(reranker, CrossEncoder):
            raise input_error(path, f"a re-ranker of the kind {reranker.settings.kind}", "a cross_encoder", FIX)
        write_cross_encoder(reranker, Source(path, template, options.cleaning), folder)
        return reranker.settings
    encoder, template = load_encoder(path)
    write_encoder(encoder, Source(path, template, options.cleaning), folder)
    return encoder.settings


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""List what a searcher opens: collection, index of BM25, models, vectors, graphs, and how each system is made of them.

Nothing is opened here, and files need not be there yet: a searcher checks what it opens.

Reads:  nothing but the options; see `cort.online.manifest` for the keys
Writes: manifest.json, with paths relative to its own folder
Usage:  python -m cort.manifest --dataset pydocs --depth 1000 --passages passages.parquet --bm25-index lucene
            --encoders '{"cort": {"model": "best", "cleaning": "raw", "precision": "fp32", "files": ["1-of-1.arrow"]}}'
            --systems '{"bm25": {"kind": "bm25", "k1": 0.9, "b": 0.4}}' --output manifest.json
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from cort.formats.cleaning import FORMS
from cort.online.manifest import PATHS, Contents, Model, check_systems, model_of, write_contents
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import write_text

log = logging.getLogger(__name__)


def parse_models(option: str, text: str) -> dict[str, Model]:
    """Read models by name from JSON."""
    try:
        return {name: model_of(one, Path()) for name, one in cli.json_object(option, text).items()}
    except (KeyError, TypeError, AttributeError) as error:
        found = f"{type(error).__name__} {error}"
        raise input_error(option, found, "model, text, precision and files of each", "fix it") from None


def parse_systems(option: str, text: str) -> dict[str, dict[str, object]]:
    """Read systems by name from JSON."""
    systems = cli.json_object(option, text)
    for name, system in systems.items():
        if not isinstance(system, dict):
            raise input_error(option, f"no mapping for {name}", "the parts of a system", "fix it")
    return {
        name: {key: Path(value) if key in PATHS else value for key, value in system.items()}
        for name, system in systems.items()
    }


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.manifest", __doc__)
    add = parser.add_argument
    add("--dataset", required=True, metavar="NAME")
    add("--depth", type=int, required=True, metavar="N", help="results per query in runs")
    add("--passages", required=True, metavar="PARQUET", help="the collection")
    add("--bm25-index", required=True, metavar="FOLDER", help="what `bm25_index` writes")
    add("--bm25-cleaning", choices=FORMS, default="raw", help="form of its texts, and of queries")
    add("--encoders", default="{}", metavar="JSON", help="model, text, precision, files (shards of the passages)")
    add("--rerankers", default="{}", metavar="JSON", help="model, text, precision, files (tokens of the passages)")
    add("--systems", required=True, metavar="JSON", help="kind and parts of each")
    add("--output", required=True, metavar="JSON")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Check, write."""
    if args.depth < 1:
        raise input_error("--depth", str(args.depth), "1 or more", "give the number of results per query")
    contents = Contents(
        args.dataset,
        args.depth,
        Path(args.passages),
        Path(args.bm25_index),
        args.bm25_cleaning,
        parse_models("--encoders", args.encoders),
        parse_models("--rerankers", args.rerankers),
        parse_systems("--systems", args.systems),
    )
    check_systems(contents, "--systems")
    output = Path(args.output)
    write_text(output, write_contents(contents, output))
    log.info("%d systems", len(contents.systems))


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

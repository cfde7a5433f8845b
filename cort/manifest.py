"""List what a searcher opens: collection, indexes, models, vectors, graphs, and how each system is made from them.

The files need not exist yet: this stage opens none of them, and a searcher checks what it opens.

Reads:  nothing but its options; see `cort.online.manifest` for the keys
Writes: manifest.json, with paths relative to its own folder
Usage:  python -m cort.manifest --dataset pydocs --depth 1000 --passages passages.parquet
            --lexical '{"bm25": {"index": "lucene", "cleaning": "raw"}}'
            --encoders '{"cort": {"model": "best", "cleaning": "raw", "precision": "fp32", "files": ["1-of-1.arrow"]}}'
            --systems '{"bm25": {"kind": "bm25", "lexical": "bm25", "k1": 0.9, "b": 0.4}}' --output manifest.json
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import Node, json_option
from cort.online.manifest import SECTIONS, make_manifest, write_manifest
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.options import optional, required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    dataset: str = required("NAME")
    depth: int = required("N", "results per query in runs")
    passages: str = required("PARQUET", "the collection")
    lexical: str = optional("{}", "index (what `index bm25` writes) and cleaning of its texts and of queries", "JSON")
    encoders: str = optional("{}", "model, cleaning, precision, files (shards of the passages)", "JSON")
    rerankers: str = optional("{}", "model, cleaning, precision, files (tokens of the passages)", "JSON")
    token_encoders: str = optional("{}", "the same of late interaction, with shards of token vectors", "JSON")
    systems: str = required("JSON", "kind and parts of each")
    output: str = required("JSON")


def stage(options: Options) -> None:
    """Check, write."""
    check_positive(options, "depth")
    named = {name: f"--{name.replace('_', '-')}" for name in (*SECTIONS, "systems")}
    sections = {name: Node(option, json_option(option, getattr(options, name))) for name, option in named.items()}
    passages = Path(options.passages)
    manifest = make_manifest(options.dataset, options.depth, passages, sections, "--systems", Path())
    write_manifest(options.output, manifest)
    log.info("%d systems", len(manifest.systems))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Record the origin of results: inputs with checksums, precisions, program, packages, Java, hardware and git commit.

Reads:  the input files (every byte, for their checksums), the metadata of vectors and scores, this environment, this
        machine
Writes: provenance.json
Usage:  python -m cort.provenance --dataset squad --inputs collection.tsv qrels.tsv --output provenance.json
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cort import __version__
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.shards import read_precision
from cort.runtime import cli
from cort.runtime.checksums import describe_inputs
from cort.runtime.machine import describe_hardware, describe_software, first_line, output_of
from cort.runtime.sections import AnyFile, JsonFile, Section, Several, Text

log = logging.getLogger(__name__)


def describe_code(folder: str | Path) -> dict[str, Any]:
    """Return version and git commit of `folder`, and whether files differ; None for both outside a repository."""
    commit = first_line("git", "-C", str(folder), "rev-parse", "HEAD")
    changes = output_of("git", "-C", str(folder), "status", "--porcelain", "--untracked-files=no") if commit else None
    return {"version": __version__, "commit": commit, "modified": None if changes is None else bool(changes.strip())}


class Options(Section):
    """Options of this stage."""

    dataset: Text
    inputs: Several[AnyFile] = ()
    sources: Several[JsonFile] = ()
    """Descriptions of further inputs, which were read elsewhere."""
    computed: Several[AnyFile] = ()
    """Vectors and scores whose precision a machine chose."""
    output: JsonFile


def stage(options: Options) -> None:
    """Collect and write all of this."""
    elsewhere = (file for path in options.sources for file in read_artifact(path, dict[str, list[Any]])["inputs"])
    record: dict[str, Any] = {
        "dataset": options.dataset,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "code": describe_code(Path(__file__).parent),
        "inputs": [*describe_inputs(options.inputs), *elsewhere],
        "precision": {path: read_precision(path) for path in options.computed},
        "software": describe_software(),
        "hardware": describe_hardware(),
    }
    write_artifact(options.output, record)
    log.info("%d inputs, commit %s", len(record["inputs"]), record["code"]["commit"] or "unknown")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Print the reference of all stages, for the documentation site: what each reads and writes, and its options.

Usage: COLUMNS=84 python -m scripts.stage_reference
"""

import argparse
import re
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from cort.runtime.cli import parser_of
from scripts.bench.common import ROOT

HEAD = """\
# Stages

A rule runs `python -m cort.STAGE`, and so can you. Most stages make one file from others and know no experiments.
"""


def options_of(module: Any) -> dict[str, Any]:
    """Return the options of a stage's commands; a stage with a single one has no name for it."""
    if hasattr(module, "COMMANDS"):
        return {command: import_module(name).Options for command, name in module.COMMANDS.items()}
    return {"": module.Options} if hasattr(module, "Options") else {}


def sections() -> Iterator[str]:
    """Write a section per stage or command."""
    for path in sorted((ROOT / "cort").glob("[a-z]*.py")):
        for command, options in options_of(import_module(f"cort.{path.stem}")).items():
            parser = parser_of(options)
            about, *files = re.split(r"\n(?=Reads|Writes|Usage)", parser.description or "", maxsplit=1)
            parser.usage, parser.description = argparse.SUPPRESS, "".join(files)
            yield f"## {path.stem} {command}".rstrip()
            yield f"{about.strip()}\n\n```text\n{parser.format_help().strip()}\n```\n"


if __name__ == "__main__":
    sys.stdout.write("\n\n".join([HEAD, *sections()]))

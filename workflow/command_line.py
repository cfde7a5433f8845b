"""Command lines of this package's modules, and the width of their output."""

from __future__ import annotations

import argparse
import shutil
import sys


def new_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Make the parser of a module with the option --configfile."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m workflow.{module}", description=doc, formatter_class=form)
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    return parser


def part_arguments(argv: list[str] | None) -> tuple[list[str], list[str]]:
    """Split a command line, by default this program's, at "--": a module's own words, and those for Snakemake."""
    words = sys.argv[1:] if argv is None else argv
    cut = words.index("--") if "--" in words else len(words)
    return words[:cut], words[cut + 1 :]


def columns(most: int) -> int:
    """Return the width of the terminal, but at most `most`, and that without a terminal."""
    return min(most, shutil.get_terminal_size((most, 24)).columns)

"""Command lines of Snakemake, which the profiles check, and of this package's modules; the width of their output."""

from __future__ import annotations

import argparse
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from cort.formats.yaml_files import read_yaml
from cort.settings import paths
from cort.system.errors import InputError, input_error

OPTIONS = ("--configfile", "--configfiles")


def new_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Make the parser of a module with the option --configfile."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"python -m workflow.{module}", description=doc, formatter_class=form)
    parser.add_argument("--configfile", default="config/pydocs.yaml")
    return parser


def columns(most: int) -> int:
    """Return the width of the terminal, but at most `most`, and that without a terminal."""
    return min(most, shutil.get_terminal_size((most, 24)).columns)


def check_configfiles(words: Sequence[str]) -> None:
    """End this program with one line if a config file on Snakemake's command line is a target, or cannot be read.

    Snakemake takes a target there for another config file, and shows a traceback for files that are missing or no YAML.
    """
    files, option = [], ""
    for word in words:
        if word.startswith("-"):
            option = word
        elif option in OPTIONS:
            files.append(word)
    try:
        for place, file in enumerate(files):
            path = Path(file)
            if place and (path.suffix not in (".yaml", ".yml", ".json") or path.parts[0] == paths.ROOT):
                fix = f"put targets first: `snakemake {file} --cores all --configfile {files[0]}`"
                raise input_error("--configfile", file, "YAML files up to the next option", fix)
            read_yaml(file, "an experiment")
    except InputError as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(1)

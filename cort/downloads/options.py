"""The options that both stages share."""

from __future__ import annotations

import argparse
from pathlib import Path

from cort.downloads.catalog import CATALOG, load_catalog
from cort.downloads.sources import Sources
from cort.downloads.transfer import Patience
from cort.system.errors import input_error


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that say which file, where it may be, and where to put it."""
    parser.add_argument("--name", required=True, help="of the file in the catalogue, as msmarco/qrels.train.tsv")
    parser.add_argument("--catalog", default=str(CATALOG), metavar="YAML", help="another catalogue")
    parser.add_argument("--downloads", required=True, metavar="FOLDER", help="keeps what was fetched, whole or in part")
    parser.add_argument(
        "--folder", nargs="?", default="", const="", metavar="FOLDER", help="has files already, is only read"
    )
    parser.add_argument(
        "--stall", type=float, default=Patience.stall, metavar="S", help="give up a transfer that stands still"
    )
    parser.add_argument(
        "--attempts", type=int, default=Patience.attempts, metavar="N", help="that get no further, for each mirror"
    )
    parser.add_argument("--output", required=True, metavar="FILE")


def sources_from(args: argparse.Namespace) -> Sources:
    """Read the catalogue and check the folder.

    :raises InputError: for a folder that is not there, or wrong numbers.
    """
    if args.stall <= 0 or args.attempts < 1:
        fix = "give seconds and a number from 1"
        raise input_error("--stall, --attempts", f"{args.stall} and {args.attempts}", "more than 0", fix)
    folder = Path(args.folder) if args.folder else None
    if folder is not None and not folder.is_dir():
        raise input_error(folder, "no such folder", "the folder with the files you have", "fix downloads.folder")
    patience = Patience(stall=args.stall, attempts=args.attempts)
    return Sources(load_catalog(args.catalog), Path(args.downloads), folder, patience)

"""Compare our results with the numbers papers published: each within its tolerance, off, or not run.

A file of published numbers (see config/papers) says of each which system, split and measure of ours stands for it, how
near is near enough and why, and why ours may differ. A number that nothing of ours was given for is not run. The point
of saturation is computed from the curve as CoRT's footnote 4 defines it: the smallest number of candidates of which
twice as many add less than 0.5 %.

Reads:  files of published numbers (YAML); measures per system and split; if given, measures by re-ranking depth,
        consistency factors, and latencies ({"system", "split", "milliseconds": {batch size: ms}} or a list of
        these, as `latency` writes them)
Writes: index.html, reproduction.json, numbers.csv, tables/PAPER.TABLE.{csv,md,tex}, figures/PAPER.FIGURE.svg
Usage:  python -m cort.reproduction --title "CoRT on MS MARCO" --dataset msmarco --papers cort-2021.yaml
            --measures-files measures/*/*.json --output-folder report/reproduction
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from cort.reporting.inputs import read_depths, read_measures
from cort.reporting.reproduction import page as writing
from cort.reporting.reproduction.fidelity import Results, counts, read_consistency, read_latencies
from cort.reporting.reproduction.page import Judged
from cort.reporting.reproduction.paper import Paper, read_paper
from cort.reporting.tables import Table, to_csv, to_latex, to_markdown
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

log = logging.getLogger(__name__)

FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}


def build(title: str, dataset: str, papers: Sequence[Paper], results: Results) -> dict[str, str]:
    """Make every file: path in the output folder -> text, the page last."""
    judged = [writing.judge(paper, results) for paper in papers]
    files = {"reproduction.json": json.dumps(writing.as_json(judged), ensure_ascii=False, indent=2) + "\n"}
    for one in judged:
        files |= _files_of(one)
    whole = [row for one in judged for row in writing.numbers_table(one, list(one.verdicts)).rows]
    files["numbers.csv"] = to_csv(Table(writing.COLUMNS, whole))
    for one in judged:
        log.info("%s: %s", one.paper.name, ", ".join(f"{number} {mark}" for mark, number in counts(one.all).items()))
    return files | {"index.html": writing.render(title, dataset, judged)}


def _files_of(judged: Judged) -> dict[str, str]:
    name = judged.paper.name
    tables = {
        f"tables/{name}.{table.name}.{ending}": write(writing.numbers_table(judged, [table.name]))
        for table in judged.paper.tables
        for ending, write in FORMATS.items()
    }
    return tables | {
        f"figures/{name}.{figure.name}.svg": writing.draw(figure, judged) for figure in judged.paper.figures
    }


def read_papers(paths: Sequence[str]) -> list[Paper]:
    """Read the files; two of one name would write the same files."""
    papers = [read_paper(path) for path in paths]
    names = [paper.name for paper in papers]
    for name in names:
        if names.count(name) > 1:
            raise input_error("--papers", f"the name {shorten(name)} twice", "each name once", "rename a file")
    return papers


def read_results(args: argparse.Namespace) -> Results:
    """Read all results of ours."""
    consistency = [read_consistency(path) for path in args.consistency_files]
    latencies = [one for path in args.latency_files for one in read_latencies(path)]
    return Results(
        {(one.system, one.split): one for one in read_measures(args.measures_files)},
        {(one.system, one.split): one for one in read_depths(args.depths_files)},
        {(one.system, one.split): one for one in consistency},
        {(one.system, one.split): one for one in latencies},
    )


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = cli.make_parser("cort.reproduction", __doc__)
    add = parser.add_argument
    add("--title", required=True, help="of the experiment")
    add("--dataset", required=True, help="name of the dataset")
    add("--papers", metavar="YAML", nargs="+", required=True, help="published numbers, a file per paper")
    add("--measures-files", metavar="JSON", nargs="*", default=[], help="measures of one system on one split each")
    add("--depths-files", metavar="JSON", nargs="*", default=[], help="measures by number of re-ranked candidates")
    add("--consistency-files", metavar="JSON", nargs="*", default=[], help="what `cort.consistency` wrote")
    add(
        "--latency-files",
        metavar="JSON",
        nargs="*",
        default=[],
        help="of one system, or what `cort.latency` wrote",
    )
    add("--output-folder", metavar="FOLDER", required=True)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read, compare, write; the page last, so that it never shows what is not there."""
    files = build(args.title, args.dataset, read_papers(args.papers), read_results(args))
    for name, text in files.items():
        write_text(Path(args.output_folder) / name, text)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; its exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

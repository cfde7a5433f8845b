"""Compare our results with published numbers: each within its tolerance, off, not run, or not to be computed.

A file of published numbers (see config/papers) says of each which system, split and measure of ours stands for it, how
near is near enough and why, why ours may differ, or why nothing of ours can stand for it. A number that nothing was
given for is not run. Its sentences that compare values hold of ours, do not, or were not computed. The point
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

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from cort.evaluation.depths import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.reporting.inputs import read_each
from cort.reporting.reproduction.fidelity import Results, read_latencies
from cort.reporting.reproduction.page import build
from cort.reporting.reproduction.paper import read_paper
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.options import optional, required


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    title: str = required(help="of the experiment")
    dataset: str = required(help="name of the dataset")
    papers: tuple[str, ...] = required("YAML", "published numbers, a file per paper")
    measures_files: tuple[str, ...] = optional((), "measures of one system on one split each", "JSON")
    depths_files: tuple[str, ...] = optional((), "measures by number of re-ranked candidates", "JSON")
    consistency_files: tuple[str, ...] = optional((), "what `cort.consistency` wrote", "JSON")
    latency_files: tuple[str, ...] = optional((), "of one system, or what `cort.latency` wrote", "JSON")
    output_folder: str = required("FOLDER")


def stage(options: Options) -> None:
    """Read, compare, write; the page last, so that it never shows what is not there."""
    papers = [read_paper(path) for path in options.papers]
    for name, times in Counter(paper.name for paper in papers).items():
        if times > 1:
            # They would write the same files.
            raise input_error("--papers", f"the name {shorten(name)} twice", "each name once", "rename a file")
    latencies = [one for path in options.latency_files for one in read_latencies(path)]
    results = Results(
        {(one.system, one.split): one for one in read_each(options.measures_files, Measures)},
        {(one.system, one.split): one for one in read_each(options.depths_files, Depths)},
        {(one.system, one.split): one for one in read_each(options.consistency_files, Consistency)},
        {(one.system, one.split): one for one in latencies},
    )
    for name, text in build(options.title, options.dataset, papers, results).items():
        write_text(Path(options.output_folder) / name, text)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

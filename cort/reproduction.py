"""Compare our results with published numbers: each is within its tolerance, off, not run, or cannot be computed.

A file of published numbers (see config/papers) gives, for each number, the system, split and measure that reproduce
it, the tolerance and its reason, and reasons why our value may differ, or why we cannot compute it. A number without a
result is not run. A paper's claims that compare values hold for ours, do not hold, or were not computed. The saturation
point is computed from the curve as in CoRT's footnote 4: the smallest number of candidates at which doubling them adds
less than 0.5 %.

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
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.measures import Measures
from cort.reporting.inputs import read_each
from cort.reporting.reproduction.fidelity import Latency, Results, read_latencies
from cort.reporting.reproduction.page import build
from cort.reporting.reproduction.paper import read_paper
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import write_text
from cort.runtime.options import optional, options_class, required

Result = TypeVar("Result", Measures, Depths, Consistency, Latency)


@options_class
class Options:
    """Options of this stage."""

    title: str = required(help="title of the experiment")
    dataset: str = required(help="name of the dataset")
    papers: tuple[str, ...] = required("YAML", "published numbers, a file per paper")
    measures_files: tuple[str, ...] = optional((), "measures of one system on one split each", "JSON")
    depths_files: tuple[str, ...] = optional((), "measures by number of re-ranked candidates", "JSON")
    consistency_files: tuple[str, ...] = optional((), "what `cort.analyze consistency` wrote", "JSON")
    latency_files: tuple[str, ...] = optional((), "latencies of one system, or what `cort.latency` wrote", "JSON")
    output_folder: str = required("FOLDER")


def by_place(results: Iterable[Result]) -> dict[tuple[str, str], Result]:
    """Map results by (system, split)."""
    return {(result.system, result.split): result for result in results}


def stage(options: Options) -> None:
    """Compare all numbers and write the files; the page last, so that everything it links to exists."""
    papers = [read_paper(path) for path in options.papers]
    for name, times in Counter(paper.name for paper in papers).items():
        # Two papers of one name would write the same files.
        if times > 1:
            raise input_error("--papers", f"the name {shorten(name)} twice", "each name once", "rename a file")
    latencies = [latency for path in options.latency_files for latency in read_latencies(path)]
    results = Results(
        by_place(read_each(options.measures_files, Measures)),
        by_place(read_each(options.depths_files, Depths)),
        by_place(read_each(options.consistency_files, Consistency)),
        by_place(latencies),
    )
    for name, text in build(options.title, options.dataset, papers, results).items():
        write_text(Path(options.output_folder) / name, text)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Write the report: one self-contained HTML page, the tables as CSV and LaTeX, the figures as SVG.

Reads: the results of an experiment: its settings, and the files that `cort.reporting.results` lists, as far as they are
       there; if given, the benchmark files of the stages, and published numbers to compare with
Writes: index.html, and the tables (tables/*.{csv,tex}) and figures (figures/*.svg) of `cort.reporting.written`; with
       published numbers reproduction/index.html and reproduction/numbers.csv. The page omits sections without input
Usage: python -m cort.report --results results/pydocs --output-folder report
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

from cort.config.stored import NAME, read_experiment
from cort.reporting import published
from cort.reporting.format import headline, plural
from cort.reporting.found import Found
from cort.reporting.page import Chapter, render
from cort.reporting.registry import KINDS
from cort.reporting.results import by_split, names_of_measures
from cort.reporting.tables import frame_csv
from cort.runtime import cli
from cort.runtime.files import write_text
from cort.runtime.sections import CsvFile, FolderPath, Maybe, Section, Several

log = logging.getLogger(__name__)

NAMES = "Papers call the means of RR@10 and AP, as measures are named here, MRR@10 and MAP."


class Options(Section):
    """Options of this stage."""

    results: FolderPath
    """Results of an experiment."""
    papers: Several[CsvFile] = ()
    """Published numbers to compare with."""
    benchmarks: Maybe[FolderPath] = None
    """Benchmark files, <rule>/**/*.tsv; the folder may be missing."""
    output_folder: FolderPath


def headlines(found: Found) -> list[str]:
    """Say for each split which system is best by its first measure."""
    lines = []
    for split, block in by_split(found.measures).items():
        rows = [row for one in found.comparisons if one.split == split for row in one.comparisons]
        name = next(iter(names_of_measures(block)), "")
        values = {one.system: one.mean.get(name) for one in block}
        if any(value is not None for value in values.values()):
            dataset = found.experiment.root.dataset
            place = f"On {plural(block[0].queries, 'query', 'queries')} of {dataset}, {split}"
            lines.append(f"{place}, {headline(values, rows, name, found.baseline)}")
    return lines


def reproduction(options: Options, found: Found) -> dict[str, str]:
    """Compare with published numbers: a page, and all numbers as CSV."""
    root = found.experiment.root
    joined = published.join(published.read_published(options.papers), published.values(found))
    known, total = int(joined["ours"].count()), len(joined)
    page = render(
        "base.html.jinja",
        title="Published numbers",
        kicker=f"{root.dataset}: {root.title}",
        lead=f"These results have a value of ours for {known} of {total} published numbers. {NAMES}",
        sections=[
            Chapter("coverage", "Coverage", [published.coverage(joined)]),
            Chapter("numbers", "Numbers", published.tables(joined)),
        ],
        files=["numbers.csv", "../index.html"],
    )
    return {"reproduction/numbers.csv": frame_csv(joined), "reproduction/index.html": page}


def build(options: Options) -> dict[str, str]:
    """Read all inputs and build every file: path in the output folder -> text, the page last."""
    experiment = read_experiment(Path(options.results) / NAME)
    found = Found(experiment, options.benchmarks)
    chapters, made, linked = list[Chapter](), dict[str, str](), list[str]()
    for kind in KINDS:
        chapter, files, links = kind.show(found)
        chapters.append(chapter)
        made |= files
        linked += links
    if options.papers:
        made |= reproduction(options, found)
        linked.append("reproduction/index.html")
    page = render(
        "report.html.jinja",
        title=experiment.root.title,
        kicker=experiment.root.dataset,
        headlines=headlines(found),
        remarks=experiment.remarks(),
        warnings=[one.text for one in found.findings if one.warns],
        explorers=found.explorers,
        sections=chapters,
        files=linked,
    )
    return made | {"index.html": page}


def stage(options: Options) -> None:
    """Build and write all files; the page last, so that everything it links to exists."""
    files = build(options)
    for name, text in files.items():
        write_text(Path(options.output_folder) / name, text)
    log.info("%d files written to %s", len(files), options.output_folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Write the report: one self-contained HTML page, the tables as CSV, Markdown and LaTeX, the figures as SVG.

Reads: measures per system and split; if given, comparisons with the baseline, measures by re-ranking depth, audits of
       graph indexes, training curves, disagreements, what filters kept and dropped, the benchmark files of the stages,
       latencies, and where all came from.
Writes: index.html, tables/{systems,comparisons,lists,audits,stages,latency}.{csv,md,tex} and
       figures/{recall,depths,audits,training}.svg in the output folder; the page leaves out what was not given, the
       files are always there.
Usage: python -m cort.report --title "CoRT on MS MARCO" --dataset msmarco --measures-files measures/*.json
       --baseline bm25 --output-folder report
"""

from __future__ import annotations

import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from cort.evaluation.comparisons import Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.disagreements import Disagreements
from cort.formats.artifacts import parse_assignments, read_artifact
from cort.reporting.curves import read_curve
from cort.reporting.inputs import read_each, read_filter, read_measures
from cort.reporting.latency import Latencies
from cort.reporting.provenance import read_origin
from cort.reporting.report import Contents, build
from cort.reporting.reproduction.artifact import Reproduction
from cort.reporting.stages import read_stages
from cort.retrieval.audits import Audit
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.options import optional, required

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this stage."""

    title: str = required(help="heading of the page")
    dataset: str = required(help="name of the dataset")
    measures_files: tuple[str, ...] = required("JSON", "measures of one system on one split each")
    description_of_systems: tuple[str, ...] = optional((), "how each system is made", "NAME=TEXT")
    baseline: str | None = optional(None, "system to which the differences are shown", "NAME")
    contender: str | None = optional(
        None, "system of the headline (the best by the first measure if not given)", "NAME"
    )
    comparisons: tuple[str, ...] = optional((), "what `cort.compare` wrote, a file per split", "JSON")
    depths_files: tuple[str, ...] = optional((), "measures by number of re-ranked candidates", "JSON")
    audits: tuple[str, ...] = optional((), "what `cort.audit` wrote, a file per index and split", "JSON")
    curves: tuple[str, ...] = optional((), "training curves", "NAME=CSV")
    disagreements: tuple[str, ...] = optional((), "what `cort.disagreements` wrote", "JSON")
    filters: tuple[str, ...] = optional((), "counts of what each filter kept and dropped", "NAME=JSON")
    benchmarks: str | None = optional(None, "benchmark files, <rule>/**/*.tsv; a missing folder is no error", "FOLDER")
    provenance: str | None = optional(None, "what `cort.provenance` wrote", "JSON")
    reproduction: str | None = optional(None, "what `cort.reproduction` wrote beside this report", "JSON")
    latency_files: tuple[str, ...] = optional((), "what `cort.latency` wrote", "JSON")
    output_folder: str = required("FOLDER")


def read(options: Options) -> Contents:
    """Read and check all inputs."""
    curves = parse_assignments("--curves", options.curves)
    filters = parse_assignments("--filters", options.filters)
    return Contents(
        title=options.title,
        dataset=options.dataset,
        baseline=options.baseline,
        contender=options.contender,
        descriptions=parse_assignments("--description-of-systems", options.description_of_systems),
        measures=read_measures(options.measures_files),
        comparisons=[read_artifact(path, Comparisons) for path in options.comparisons],
        depths=read_each(options.depths_files, Depths),
        audits=[read_artifact(path, Audit) for path in options.audits],
        curves=[read_curve(name, path) for name, path in curves.items()],
        disagreements=[read_artifact(path, Disagreements) for path in options.disagreements],
        filters=[read_filter(name, path) for name, path in filters.items()],
        stages=read_stages(options.benchmarks) if options.benchmarks else [],
        origin=read_origin(options.provenance) if options.provenance else None,
        reproduction=read_artifact(options.reproduction, Reproduction) if options.reproduction else None,
        latencies=[read_artifact(path, Latencies) for path in options.latency_files],
    )


def stage(options: Options) -> None:
    """Read, build, write; the page last, so that it never shows what is not there."""
    contents = read(options)
    systems = dict.fromkeys(one.system for one in contents.measures)
    for option, name in (("--baseline", options.baseline), ("--contender", options.contender)):
        if name is not None and name not in systems:
            expected = f"one of {', '.join(systems)}"
            raise input_error(option, shorten(name), expected, "name a system that was measured")
    files = build(contents)
    for name, text in files.items():
        write_text(Path(options.output_folder) / name, text)
    log.info("%d measures files, %d files written to %s", len(contents.measures), len(files), options.output_folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

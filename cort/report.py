"""Write the report: one self-contained HTML page, the tables as CSV, Markdown and LaTeX, the figures as SVG.

Reads: measures per system and split; if given, comparisons with the baseline, measures by re-ranking depth, audits of
       graph indexes, training curves, examples, what filters kept and dropped, the benchmark files of the stages,
       latencies, and where all came from.
Writes: index.html, tables/{systems,comparisons,lists,audits,stages,latency}.{csv,md,tex} and
       figures/{recall,depths,audits,training}.svg in the output folder; the page leaves out what was not given, the
       files are always there.
Usage: python -m cort.report --title "CoRT on MS MARCO" --dataset msmarco --measures-files measures/*.json
       --baseline bm25 --output-folder report
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cort.formats.artifacts import parse_assignments
from cort.reporting import figures, panels
from cort.reporting.audits import Block, audit_blocks, audit_panels, audits_table
from cort.reporting.comparisons import (
    Contrasts,
    contrasts_table,
    legend,
    lengths_table,
    read_contrasts,
    significant_differences,
)
from cort.reporting.curves import Curve, read_curve, summarize
from cort.reporting.inputs import (
    Comparison,
    Depths,
    Filter,
    Measures,
    read_comparison,
    read_depths,
    read_filter,
    read_measures,
)
from cort.reporting.latency import (
    Latencies,
    Published,
    latency_blocks,
    latency_table,
    read_latencies,
    read_published,
)
from cort.reporting.page import Gate, Page, render, saturation_rows, systems_blocks
from cort.reporting.panels import Panel
from cort.reporting.provenance import Origin, read_origin
from cort.reporting.reproduction.counts import read_gates
from cort.reporting.stages import Stage, read_stages
from cort.reporting.summary import headlines
from cort.reporting.tables import Table, names_of_measures, stages_table, systems_table, to_csv, to_latex, to_markdown
from cort.retrieval.audits import Audit, read_audit
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text

log = logging.getLogger(__name__)

FORMATS: dict[str, Callable[[Table], str]] = {"csv": to_csv, "md": to_markdown, "tex": to_latex}
PAGE = "index.html"
NO_DATA = {
    "recall": "No recall figure: recall was not evaluated at two or more cutoffs.",
    "depths": "No depth figure: nothing was re-ranked at several depths.",
    "audits": "No figure of graph indexes: none was measured.",
    "training": "No training figure: no training curve was given.",
}


@dataclass(frozen=True)
class Contents:
    """All that was read."""

    measures: list[Measures]
    contrasts: list[Contrasts] = field(default_factory=list)
    depths: list[Depths] = field(default_factory=list)
    curves: list[Curve] = field(default_factory=list)
    comparisons: list[Comparison] = field(default_factory=list)
    filters: list[Filter] = field(default_factory=list)
    stages: list[Stage] = field(default_factory=list)
    origin: Origin | None = None
    reproduction: list[Gate] = field(default_factory=list)
    audits: list[Audit] = field(default_factory=list)
    latencies: list[Latencies] = field(default_factory=list)
    published: list[Published] = field(default_factory=list)


def build(
    title: str,
    dataset: str,
    contents: Contents,
    *,
    baseline: str | None = None,
    contender: str | None = None,
    descriptions: dict[str, str] | None = None,
) -> dict[str, str]:
    """Make every file of the report: path in the output folder -> text, the page last."""
    audited = audit_blocks(contents.audits, names_of_measures(contents.measures))
    drawn = figure_panels(contents, baseline, audited)
    contrasts = contents.contrasts
    files = {
        f"tables/{name}.{ending}": write(table)
        for name, table in (
            ("systems", systems_table(contents.measures, significant_differences(contrasts), legend(contrasts))),
            ("comparisons", contrasts_table(contrasts)),
            ("lists", lengths_table(contrasts)),
            ("audits", audits_table(audited)),
            ("stages", stages_table(contents.stages)),
            ("latency", latency_table(contents.latencies)),
        )
        for ending, write in FORMATS.items()
    }
    for name, found in drawn.items():
        files[f"figures/{name}.svg"] = figures.draw(found, name) if found else figures.missing(NO_DATA[name])
    inline = {
        name: [figures.draw_inline(panel, f"{name}-{number}") for number, panel in enumerate(found, start=1)]
        for name, found in drawn.items()
    }
    page = Page(
        title,
        dataset,
        headlines(dataset, contents.measures, baseline, contender),
        baseline,
        systems_blocks(contents.measures, baseline, contrasts),
        descriptions or {},
        contrasts,
        inline["recall"],
        inline["depths"],
        saturation_rows(contents.depths),
        inline["training"],
        [summarize(curve) for curve in contents.curves],
        contents.comparisons,
        contents.filters,
        contents.stages,
        contents.origin,
        contents.reproduction,
        inline["audits"],
        audited,
        latency_blocks(contents.latencies),
        contents.published if contents.latencies else [],
    )
    return files | {PAGE: render(page)}


def figure_panels(contents: Contents, baseline: str | None, audited: Sequence[Block] = ()) -> dict[str, list[Panel]]:
    """Make the panels of each figure; none where there is nothing to draw."""
    systems = [one.system for one in contents.measures] + [one.system for one in contents.depths]
    look = panels.looks(systems, baseline)
    return {
        "recall": panels.recall_panels(contents.measures, look),
        "depths": panels.depth_panels(contents.depths, look),
        "audits": audit_panels(audited),
        "training": panels.training_panels(contents.curves),
    }


def read(args: argparse.Namespace) -> Contents:
    """Read and check all inputs."""
    curves = parse_assignments("--curves", args.curves)
    filters = parse_assignments("--filters", args.filters)
    return Contents(
        read_measures(args.measures_files),
        [read_contrasts(path) for path in args.comparisons],
        read_depths(args.depths_files),
        [read_curve(name, path) for name, path in curves.items()],
        [read_comparison(path) for path in args.disagreements],
        [read_filter(name, path) for name, path in filters.items()],
        read_stages(args.benchmarks) if args.benchmarks else [],
        read_origin(args.provenance) if args.provenance else None,
        read_gates(args.reproduction) if args.reproduction else [],
        [read_audit(path) for path in args.audits],
        [read_latencies(path) for path in args.latency_files],
        read_published(args.reproduction) if args.reproduction else [],
    )


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = cli.make_parser("cort.report", __doc__)
    add = parser.add_argument
    add("--title", required=True, help="heading of the page")
    add("--dataset", required=True, help="name of the dataset")
    add("--measures-files", metavar="JSON", nargs="+", required=True, help="measures of one system on one split each")
    add("--description-of-systems", metavar="NAME=TEXT", nargs="*", default=[], help="how each system is made")
    add("--baseline", metavar="NAME", help="system to which the differences are shown")
    add("--contender", metavar="NAME", help="system of the headline (default: the best by the first measure)")
    add("--comparisons", metavar="JSON", nargs="*", default=[], help="what `cort.compare` wrote, a file per split")
    add("--depths-files", metavar="JSON", nargs="*", default=[], help="measures by number of re-ranked candidates")
    add("--audits", metavar="JSON", nargs="*", default=[], help="what `cort.audit` wrote, a file per index and split")
    add("--curves", metavar="NAME=CSV", nargs="*", default=[], help="training curves")
    add("--disagreements", metavar="JSON", nargs="*", default=[], help="what `cort.disagreements` wrote")
    add("--filters", metavar="NAME=JSON", nargs="*", default=[], help="counts of what each filter kept and dropped")
    add("--benchmarks", metavar="FOLDER", help="benchmark files, <rule>/**/*.tsv; a missing folder is no error")
    add("--provenance", metavar="JSON", help="what `cort.provenance` wrote")
    add("--reproduction", metavar="JSON", help="what `cort.reproduction` wrote beside this report")
    add("--latency-files", metavar="JSON", nargs="*", default=[], help="what `cort.latency` wrote")
    add("--output-folder", metavar="FOLDER", required=True)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read, build, write; the page last, so that it never shows what is not there."""
    contents = read(args)
    for option, name in (("--baseline", args.baseline), ("--contender", args.contender)):
        if name is not None and name not in {one.system for one in contents.measures}:
            systems = ", ".join(dict.fromkeys(one.system for one in contents.measures))
            raise input_error(option, shorten(name), f"one of {systems}", "name a system that was measured")
    files = build(
        args.title,
        args.dataset,
        contents,
        baseline=args.baseline,
        contender=args.contender,
        descriptions=parse_assignments("--description-of-systems", args.description_of_systems),
    )
    for name, text in files.items():
        write_text(Path(args.output_folder) / name, text)
    log.info("%d measures files, %d files written to %s", len(contents.measures), len(files), args.output_folder)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; its exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

"""The report: one page with all tables and figures, and each of these as files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cort.evaluation.comparisons import Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.disagreements import Disagreements
from cort.evaluation.measures import Measures
from cort.reporting import figures, panels
from cort.reporting.audits import Block, audit_blocks, audit_panels, audits_table
from cort.reporting.comparisons import comparisons_table, legend, lengths_table, significant_differences
from cort.reporting.curves import Curve, summarize
from cort.reporting.inputs import Filter
from cort.reporting.latency import Latencies, latency_blocks, latency_table, published_latencies
from cort.reporting.page import render, saturation_rows, systems_blocks
from cort.reporting.panels import Panel
from cort.reporting.provenance import Origin
from cort.reporting.reproduction.artifact import Reproduction
from cort.reporting.stages import Stage
from cort.reporting.summary import headlines
from cort.reporting.tables import in_formats, names_of_measures, stages_table, systems_table
from cort.retrieval.audits import Audit

PAGE = "index.html"
NO_DATA = {
    "recall": "No recall figure: recall was not evaluated at two or more cutoffs.",
    "depths": "No depth figure: nothing was re-ranked at several depths.",
    "audits": "No figure of graph indexes: none was measured.",
    "training": "No training figure: no training curve was given.",
}


@dataclass(frozen=True, kw_only=True)
class Contents:
    """All that a report shows; what is empty is left out."""

    title: str
    dataset: str
    baseline: str | None
    contender: str | None
    measures: Sequence[Measures]
    descriptions: Mapping[str, str] = field(default_factory=dict)
    comparisons: Sequence[Comparisons] = ()
    depths: Sequence[Depths] = ()
    audits: Sequence[Audit] = ()
    curves: Sequence[Curve] = ()
    disagreements: Sequence[Disagreements] = ()
    filters: Sequence[Filter] = ()
    stages: Sequence[Stage] = ()
    origin: Origin | None = None
    reproduction: Reproduction | None = None
    latencies: Sequence[Latencies] = ()


def build(contents: Contents) -> dict[str, str]:
    """Make every file of the report: path in the output folder -> text, the page last."""
    measures, comparisons = contents.measures, contents.comparisons
    audited = audit_blocks(contents.audits, names_of_measures(measures))
    tables = {
        "systems": systems_table(measures, significant_differences(comparisons), legend(comparisons)),
        "comparisons": comparisons_table(comparisons),
        "lists": lengths_table(comparisons),
        "audits": audits_table(audited),
        "stages": stages_table(contents.stages),
        "latency": latency_table(contents.latencies),
    }
    files: dict[str, str] = {}
    for name, table in tables.items():
        files |= in_formats(f"tables/{name}", table)
    inline = {}
    for name, found in figure_panels(contents, audited).items():
        files[f"figures/{name}.svg"] = figures.draw(found, name, NO_DATA[name])
        inline[name] = figures.draw_inline(found, name)
    page = render(
        "report.html.jinja",
        report=contents,
        figures=inline,
        headlines=headlines(contents.dataset, measures, contents.baseline, contents.contender),
        systems=systems_blocks(measures, contents.baseline, comparisons),
        saturation=saturation_rows(contents.depths),
        trainings=[summarize(curve) for curve in contents.curves],
        audits=audited,
        latencies=latency_blocks(contents.latencies),
        published_latencies=published_latencies(contents.reproduction) if contents.reproduction else [],
    )
    return files | {PAGE: page}


def figure_panels(contents: Contents, audited: Sequence[Block]) -> dict[str, list[Panel]]:
    """Make the panels of each figure; none where there is nothing to draw."""
    systems = [one.system for one in contents.measures] + [one.system for one in contents.depths]
    look = panels.looks(systems, contents.baseline)
    return {
        "recall": panels.recall_panels(contents.measures, look),
        "depths": panels.depth_panels(contents.depths, look),
        "audits": audit_panels(audited),
        "training": panels.training_panels(contents.curves),
    }

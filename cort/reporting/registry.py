"""The chapters of a report: what each shows; `cort.reporting.written` lists its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cort.config.recipes import chosen_values, describe_training
from cort.evaluation.agreement import Agreement
from cort.evaluation.curves import Consistency
from cort.evaluation.overlap import Overlap
from cort.reporting import panels, sections
from cort.reporting.costs import FRONT, costs_panels, costs_table, shares_of_memory
from cort.reporting.figures import Panel, draw, embed
from cort.reporting.found import Found
from cort.reporting.page import Chapter
from cort.reporting.tables import Table
from cort.reporting.tables import files_of as files_of_table
from cort.reporting.written import WRITTEN


@dataclass(frozen=True)
class Kind:
    """A kind of chapter.

    :ivar files: the tables that are files, if they are not those on the page.
    :ivar panels: of its figure, which `caption` explains on the page.
    :ivar folded: further tables, under `summary`.
    """

    name: str
    heading: str
    tables: Callable[[Found], Sequence[Table]]
    files: Callable[[Found], Sequence[Table]] | None = None
    panels: Callable[[Found], Sequence[Panel]] | None = None
    caption: str = ""
    facts: Callable[[Found], Mapping[str, str]] = lambda _: {}
    folded: Callable[[Found], Sequence[Table]] = lambda _: ()
    summary: str = ""

    def show(self, found: Found) -> tuple[Chapter, dict[str, str], list[str]]:
        """Make the chapter, the files by their paths, and list those that are worth a link."""
        tables, folded = self.tables(found), self.folded(found)
        drawn = self.panels(found) if self.panels else []
        pictures, facts = embed(drawn), self.facts(found)
        chapter = Chapter(self.name, self.heading, tables, pictures, self.caption, facts, folded, self.summary)
        made, linked, own = dict[str, str](), list[str](), WRITTEN.get(self.name)
        if own and (own.reads not in found.files or found.files[own.reads]):
            kept = self.files(found) if self.files else [*tables, *folded]
            for table in (table for table in kept if table.name in own.tables):
                made |= {f"tables/{name}": text for name, text in files_of_table(table).items()}
                linked += [f"tables/{table.name}.csv"] if len(table.frame) else []
            if own.figure:
                made[f"figures/{own.figure}.svg"] = draw(drawn)
                linked += [f"figures/{own.figure}.svg"] if drawn else []
        return chapter, made, linked


def systems(found: Found) -> list[Table]:
    """Tabulate all measures; papers get the labels of systems."""
    table = sections.systems_table(found.measures, found.comparisons)
    return [replace(table, paper=sections.paper_table(table, found.experiment.labels, found.comparisons))]


def compared(found: Found) -> Table:
    """Tabulate all comparisons, with links to the explorer."""
    shares = shares_of_memory(found.experiment, found.sizes)
    return sections.comparisons_table(found.comparisons, found.links, shares)


def verdicts(found: Found) -> list[Table]:
    """Tabulate the comparisons by the first measure."""
    table = compared(found)
    pairs = table.frame.drop_duplicates(["split", "system", "against"]).index
    columns = ["split", "system", "verdict", "against", "measure", "difference", "low", "high", "p corrected"]
    columns += ["corrected over", "remark"]
    return [replace(table.only(columns, pairs), caption="verdicts by the first measure.")]


def trainings(found: Found) -> list[Table]:
    """Tabulate trainings."""
    last = [name for (_, name), model in found.experiment.learners.items() if model.checkpoint == "last"]
    return [sections.trainings_table(found.curves, found.selections, last)]


def recipes(found: Found) -> dict[str, str]:
    """Describe the settings of trainings."""
    values = chosen_values(found.experiment) if found.curves else {}
    return {name: describe_training(one) for (_, name), one in values.items()}


#: in the order of the page
KINDS = (
    Kind(
        "answer",
        "At a glance",
        lambda found: [*sections.answer_tables(found.measures, found.comparisons, found.baseline)],
        panels=lambda found: panels.recall_panels(found.measures, found.looks),
        caption="Share of the relevant passages among the top k results: the upper bound for a re-ranker of k "
        "candidates.",
    ),
    Kind("systems", "Systems", systems, facts=lambda found: found.descriptions),
    Kind(
        "verdicts",
        "Verdicts",
        verdicts,
        folded=lambda found: [compared(found), sections.lengths_table(found.comparisons)],
        summary="All measures: means, differences, p-values, queries won and lost; lengths of lists",
    ),
    Kind(
        "costs",
        "Costs",
        lambda found: [costs_table(found.costs)],
        panels=lambda found: costs_panels(found.costs, found.looks),
        caption=FRONT,
    ),
    Kind("data", "The data", lambda found: [sections.findings_table(found.findings)]),
    Kind(
        "overlap",
        "Splits without judgements",
        lambda found: [sections.overlap_table(found.all_of("overlaps", Overlap))],
    ),
    Kind(
        "judged",
        "Unjudged passages",
        lambda found: [sections.judged_table(sections.deeply_judged(found.measures))],
        # Of all splits.
        files=lambda found: [sections.judged_table(found.measures)],
    ),
    Kind(
        "agreement",
        "Agreement of labels",
        lambda found: [sections.agreement_table(found.all_of("agreements", Agreement))],
    ),
    Kind(
        "depths",
        "Re-ranking depth",
        lambda found: [sections.depths_table(found.depths)],
        panels=lambda found: panels.depth_panels(found.depths, found.looks),
        caption="Quality after re-ranking against the number of candidates. Dashed drops mark saturation: doubling the "
        "candidates adds less than 0.5 %.",
    ),
    Kind(
        "consistency",
        "Consistency",
        lambda found: [sections.consistency_table(found.all_of("consistency", Consistency))],
    ),
    Kind(
        "audits",
        "Indexes",
        lambda found: [sections.audits_table(found.audits)],
        panels=lambda found: panels.audit_panels(sections.audits_table(found.audits)),
        caption="Share of the exact top results that an index finds, by mean time per query in one thread.",
    ),
    Kind(
        "training",
        "Training",
        trainings,
        panels=lambda found: panels.training_panels(found.curves),
        caption="Training loss (thin: as logged, thick: moving mean) and validation loss against the update step.",
        facts=recipes,
    ),
    Kind("truncation", "Truncated texts", lambda found: [sections.truncations_table(found.truncations)]),
    Kind(
        "filters",
        "Kept and dropped",
        lambda found: [sections.filters_table(found.by_name("filters", dict[str, int]))],
    ),
    Kind("latency", "Latency", lambda found: [sections.latency_table(found.latencies)]),
    Kind("stages", "Time and memory", lambda found: [sections.stages_table(found.jobs)]),
    Kind(
        "origin",
        "Provenance of the results",
        lambda found: [sections.inputs_table(found.origin[1])],
        facts=lambda found: found.origin[0],
    ),
)

"""The chapters of a report: what each reads, shows and writes; lists of its files come from here."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from cort.config.experiment import Experiment
from cort.config.recipes import chosen_values, describe_training
from cort.evaluation.agreement import Agreement
from cort.evaluation.curves import Consistency
from cort.evaluation.overlap import Overlap
from cort.reporting import panels, sections
from cort.reporting.costs import FRONT, costs_panels, costs_table, shares_of_memory
from cort.reporting.figures import Panel, draw, embed
from cort.reporting.found import Found
from cort.reporting.page import Chapter
from cort.reporting.results import files_of
from cort.reporting.tables import Table
from cort.reporting.tables import files_of as files_of_table


@dataclass(frozen=True)
class Kind:
    """A kind of chapter.

    :ivar reads: kind of the results of which it writes files; without such in the experiment, it writes none.
    :ivar written: names of the tables that are files, too.
    :ivar files: these tables, if they are not those on the page.
    :ivar panels: of its figure, which is a file of the name `figure`; `caption` explains it on the page.
    :ivar folded: further tables, under `summary`.
    """

    name: str
    heading: str
    reads: str
    tables: Callable[[Found], Sequence[Table]]
    written: tuple[str, ...] = ()
    files: Callable[[Found], Sequence[Table]] | None = None
    figure: str = ""
    panels: Callable[[Found], Sequence[Panel]] | None = None
    caption: str = ""
    facts: Callable[[Found], Mapping[str, str]] = lambda _: {}
    folded: Callable[[Found], Sequence[Table]] = lambda _: ()
    summary: str = ""

    def names(self) -> Iterator[str]:
        """Paths of its files in the folder of the report."""
        yield from (f"tables/{name}.{ending}" for name in self.written for ending in ("csv", "tex"))
        if self.figure:
            yield f"figures/{self.figure}.svg"

    def show(self, found: Found) -> tuple[Chapter, dict[str, str], list[str]]:
        """Make the chapter, the files by their paths, and list those that are worth a link."""
        tables, folded = self.tables(found), self.folded(found)
        drawn = self.panels(found) if self.panels else []
        pictures, facts = embed(drawn), self.facts(found)
        chapter = Chapter(self.name, self.heading, tables, pictures, self.caption, facts, folded, self.summary)
        made, linked = dict[str, str](), list[str]()
        if self.reads not in found.files or found.files[self.reads]:
            kept = self.files(found) if self.files else [*tables, *folded]
            for table in (table for table in kept if table.name in self.written):
                made |= {f"tables/{name}": text for name, text in files_of_table(table).items()}
                linked += [f"tables/{table.name}.csv"] if len(table.frame) else []
            if self.figure:
                made[f"figures/{self.figure}.svg"] = draw(drawn)
                linked += [f"figures/{self.figure}.svg"] if drawn else []
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
        *("answer", "At a glance", "measures"),
        lambda found: [*sections.answer_tables(found.measures, found.comparisons, found.baseline)],
        figure="recall",
        panels=lambda found: panels.recall_panels(found.measures, found.looks),
        caption="Share of the relevant passages among the top k results: the upper bound for a re-ranker of k "
        "candidates.",
    ),
    Kind("systems", "Systems", "measures", systems, ("systems",), facts=lambda found: found.descriptions),
    Kind(
        *("verdicts", "Verdicts", "comparisons"),
        verdicts,
        ("comparisons", "lists"),
        folded=lambda found: [compared(found), sections.lengths_table(found.comparisons)],
        summary="All measures: means, differences, p-values, queries won and lost; lengths of lists",
    ),
    Kind(
        *("costs", "Costs", "measures"),
        lambda found: [costs_table(found.costs)],
        ("costs",),
        figure="costs",
        panels=lambda found: costs_panels(found.costs, found.looks),
        caption=FRONT,
    ),
    Kind("data", "The data", "others", lambda found: [sections.findings_table(found.findings)]),
    Kind(
        *("overlap", "Splits without judgements", "overlaps"),
        lambda found: [sections.overlap_table(found.all_of("overlaps", Overlap))],
        ("overlap",),
    ),
    Kind(
        *("judged", "Unjudged passages", "measures"),
        lambda found: [sections.judged_table(sections.deeply_judged(found.measures))],
        ("judged",),
        # Of all splits.
        lambda found: [sections.judged_table(found.measures)],
    ),
    Kind(
        *("agreement", "Agreement of labels", "agreements"),
        lambda found: [sections.agreement_table(found.all_of("agreements", Agreement))],
    ),
    Kind(
        *("depths", "Re-ranking depth", "depths"),
        lambda found: [sections.depths_table(found.depths)],
        figure="depths",
        panels=lambda found: panels.depth_panels(found.depths, found.looks),
        caption="Quality after re-ranking against the number of candidates. Dashed drops mark saturation: doubling the "
        "candidates adds less than 0.5 %.",
    ),
    Kind(
        *("consistency", "Consistency", "consistency"),
        lambda found: [sections.consistency_table(found.all_of("consistency", Consistency))],
    ),
    Kind(
        *("audits", "Indexes", "audits"),
        lambda found: [sections.audits_table(found.audits)],
        ("audits",),
        figure="audits",
        panels=lambda found: panels.audit_panels(sections.audits_table(found.audits)),
        caption="Share of the exact top results that an index finds, by mean time per query in one thread.",
    ),
    Kind(
        *("training", "Training", "curves"),
        trainings,
        figure="training",
        panels=lambda found: panels.training_panels(found.curves),
        caption="Training loss (thin: as logged, thick: moving mean) and validation loss against the update step.",
        facts=recipes,
    ),
    Kind(*("truncation", "Truncated texts", "lengths"), lambda found: [sections.truncations_table(found.truncations)]),
    Kind(
        *("filters", "Kept and dropped", "filters"),
        lambda found: [sections.filters_table(found.by_name("filters", dict[str, int]))],
    ),
    Kind("latency", "Latency", "latencies", lambda found: [sections.latency_table(found.latencies)], ("latency",)),
    Kind("stages", "Time and memory", "benchmarks", lambda found: [sections.stages_table(found.jobs)], ("stages",)),
    Kind(
        *("origin", "Provenance of the results", "others"),
        lambda found: [sections.inputs_table(found.origin[1])],
        facts=lambda found: found.origin[0],
    ),
)


def files_of_report(experiment: Experiment) -> list[str]:
    """List the tables and figures that a report writes, in its folder."""
    files = files_of(experiment)
    return [name for kind in KINDS if kind.reads not in files or files[kind.reads] for name in kind.names()]

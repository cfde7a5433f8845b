"""Write the report: one self-contained HTML page, the tables as CSV, Markdown and LaTeX, the figures as SVG.

Reads: the results of an experiment: its settings, and the files that `cort.reporting.results` lists, as far as they are
       there; if given, the benchmark files of the stages, and published numbers to compare with
Writes: index.html, tables/*.{csv,md,tex} and figures/*.svg in the output folder, and with published numbers
       reproduction/index.html and reproduction/numbers.csv. The pages omit sections without input; the files are always
       written.
Usage: python -m cort.report --results results/pydocs --output-folder report
"""

from __future__ import annotations

import logging
import os
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

from cort.config.experiment import Experiment
from cort.config.recipes import chosen_values, describe_training
from cort.config.stored import NAME, read_experiment
from cort.evaluation.agreement import Agreement
from cort.evaluation.comparisons import Comparisons
from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.inspection import Finding
from cort.evaluation.measures import Measures
from cort.evaluation.overlap import Overlap
from cort.formats.artifacts import read_artifact
from cort.models.truncation import Truncation, measure_texts, read_limits
from cort.reporting import figures, published, sections
from cort.reporting.costs import (
    FRONT,
    NOTHING,
    bytes_per_passage,
    costs_frame,
    costs_panels,
    costs_table,
    shares_of_memory,
)
from cort.reporting.figures import embed
from cort.reporting.format import address, headline, plural
from cort.reporting.page import Chapter, render
from cort.reporting.results import Latencies, Read, files_of, read_all, read_curve, read_jobs, read_origin
from cort.reporting.tables import Table, frame_csv, to_latex
from cort.reporting.tables import files_of as files_of_table
from cort.retrieval.audits import Audit
from cort.retrieval.weights import FoldedWeights, TunedWeights
from cort.runtime import cli
from cort.runtime.files import write_text
from cort.runtime.sections import CsvFile, FolderPath, Maybe, Section, Several
from cort.training.outcome import Selection

log = logging.getLogger(__name__)

NO_DATA = {
    "recall": "No recall figure: recall was not evaluated at two or more cutoffs.",
    "depths": "No depth figure: nothing was re-ranked at several depths.",
    "costs": NOTHING,
    "audits": "No figure of graph indexes: none was measured.",
    "training": "No training figure: no training curve was given.",
}
TOP = "Share of the relevant passages among the top k results: the upper bound for a re-ranker of k candidates."
SATURATION = (
    "Quality after re-ranking against the number of candidates. Dashed drops mark saturation: doubling the candidates "
    "adds less than 0.5 %."
)
NAMES = "Papers call the means of RR@10 and AP, as measures are named here, MRR@10 and MAP."
SPEED = "Share of the exact top results that an index finds, by mean time per query in one thread."
LOSSES = "Training loss (thin: as logged, thick: moving mean) and validation loss against the update step."


class Options(Section):
    """Options of this stage."""

    results: FolderPath
    """Results of an experiment."""
    papers: Several[CsvFile] = ()
    """Published numbers to compare with."""
    benchmarks: Maybe[FolderPath] = None
    """Benchmark files, <rule>/**/*.tsv; the folder may be missing."""
    output_folder: FolderPath


def describe_systems(experiment: Experiment, files: dict[str, str]) -> dict[str, str]:
    """Describe how each system works, with its tuned weights."""
    texts = {name: system.describe() for name, system in experiment.systems.items()}
    for key, path in files.items():
        name, folded, split = key.partition(" on ")
        weights = read_artifact(path, FoldedWeights if folded else TunedWeights)
        shares = zip(*(fold.weights for fold in getattr(weights, "folds", [weights])), strict=True)
        ranges = (" to ".join(f"{share:g}" for share in sorted({min(own), max(own)})) for own in shares)
        parts = ", ".join(f"{part} {own}" for part, own in zip(weights.parts, ranges, strict=True))
        texts[name] += f"{f'; {experiment.title_of_split(split)}' if folded else ''}: {parts}"
        texts[name] += f" ({plural(weights.queries, 'query', 'queries')})"
    return texts


def truncations(models: dict[str, str], lengths: dict[str, str]) -> list[tuple[str, str, Truncation]]:
    """Measure how much of its texts each model truncates: a row for each model and kind of text."""
    rows = []
    # A card stands for the folder of a model.
    for name, folder in ((name, os.path.dirname(card)) for name, card in models.items()):
        texts = {key.rpartition(" ")[2]: path for key, path in lengths.items() if key.rpartition(" ")[0] == name}
        if os.path.isdir(folder) and (limits := read_limits(folder)) is not None:
            rows += [(name, text, one) for text, one in measure_texts(limits, texts).items()]
    return rows


def headlines(measures: list[Measures], comparisons: list[Comparisons], dataset: str, baseline: str) -> list[str]:
    """Say for each split which system is best by its first measure."""
    lines = []
    for split, block in sections.by_split(measures).items():
        rows = [row for one in comparisons if one.split == split for row in one.comparisons]
        name = next(iter(sections.names_of_measures(block)), "")
        values = {one.system: one.mean.get(name) for one in block}
        if any(value is not None for value in values.values()):
            place = f"On {plural(block[0].queries, 'query', 'queries')} of {dataset}, {split}"
            lines.append(f"{place}, {headline(values, rows, name, baseline)}")
    return lines


def verdicts(compared: Table, lists: Table) -> Chapter:
    """Show the verdicts by the first measure; all measures, and the lengths of lists, are folded."""
    pairs = compared.frame.drop_duplicates(["split", "system", "against"]).index
    columns = ["split", "system", "verdict", "against", "measure", "difference", "low", "high", "p corrected"]
    columns += ["corrected over", "remark"]
    first = replace(compared.only(columns, pairs), caption="verdicts by the first measure.")
    summary = "All measures: means, differences, p-values, queries won and lost; lengths of lists"
    return Chapter("verdicts", "Verdicts", [first], folded=[compared, lists], summary=summary)


def reproduction(options: Options, title: str, dataset: str, ours: list[published.Value]) -> dict[str, str]:
    """Compare with published numbers: a page, and all numbers as CSV."""
    joined = published.join(published.read_published(options.papers), ours)
    known, total = int(joined["ours"].count()), len(joined)
    shown = [
        Chapter("coverage", "Coverage", [published.coverage(joined)]),
        Chapter("numbers", "Numbers", published.tables(joined)),
    ]
    page = render(
        "base.html.jinja",
        title="Published numbers",
        kicker=f"{dataset}: {title}",
        lead=f"These results have a value of ours for {known} of {total} published numbers. {NAMES}",
        sections=shown,
        files=["numbers.csv", "../index.html"],
    )
    return {
        "reproduction/numbers.csv": frame_csv(joined),
        "reproduction/index.html": page,
    }


def build(options: Options) -> dict[str, str]:
    """Read all inputs and build every file: path in the output folder -> text, the page last."""
    experiment = read_experiment(Path(options.results) / NAME)
    root, files = experiment.root, files_of(experiment)
    there = {kind: {name: path for name, path in own.items() if os.path.exists(path)} for kind, own in files.items()}
    baseline = experiment.evaluation.baseline

    def read(kind: str, of: type[Read]) -> list[Read]:
        return read_all(experiment, files[kind].values(), of)

    measures, comparisons, depths = read("measures", Measures), read("comparisons", Comparisons), read("depths", Depths)
    curves = {name: read_curve(path) for name, path in there["curves"].items()}
    selections = {name: read_artifact(path, Selection) for name, path in there["selections"].items()}
    filters = {name: read_artifact(path, dict[str, int]) for name, path in there["filters"].items()}
    others = there["others"]
    findings = read_artifact(others["inspection"], list[Finding]) if "inspection" in others else []
    facts, inputs = read_origin(others["provenance"]) if "provenance" in others else ({}, [])
    last = [name for (_, name), model in experiment.learners.items() if model.checkpoint == "last"]
    pages = {
        experiment.title_of_split(split): f"explore/{quote(split)}/index.html" for split, _ in experiment.ranked_runs
    }
    links = {
        (one.split, row.system, row.baseline): address(pages[one.split], row.system, row.baseline)
        for one in comparisons
        for row in one.comparisons
    }

    latencies, sizes = read("latencies", Latencies), bytes_per_passage(experiment)
    costs = costs_frame(measures, comparisons, latencies, sizes)
    systems, cost = sections.systems_table(measures, comparisons), costs_table(costs)
    compared = sections.comparisons_table(comparisons, links, shares_of_memory(experiment, sizes))
    lists = sections.lengths_table(comparisons)
    judged, overlap = sections.judged_table(measures), sections.overlap_table(read("overlaps", Overlap))
    audits, latency = sections.audits_table(read("audits", Audit)), sections.latency_table(latencies)
    stages = sections.stages_table(read_jobs(options.benchmarks) if options.benchmarks else [])

    looks = {name: place for place, name in enumerate(dict.fromkeys([baseline, *experiment.systems]))}
    panels = {
        "recall": sections.recall_panels(measures, looks),
        "costs": costs_panels(costs, looks),
        "depths": sections.depth_panels(depths, looks),
        "audits": sections.audit_panels(audits),
        "training": sections.training_panels(curves),
    }
    pictures = {name: embed(shown) for name, shown in panels.items()}
    answers = [*sections.answer_tables(measures, comparisons, baseline)]
    truncated = sections.truncations_table(truncations(files["models"], there["lengths"]))
    recipes = {name: describe_training(values) for (_, name), values in chosen_values(experiment).items()}
    shown = [
        Chapter("answer", "At a glance", answers, pictures["recall"], TOP),
        Chapter("systems", "Systems", [systems], facts=describe_systems(experiment, there["tuned"])),
        verdicts(compared, lists),
        Chapter("costs", "Costs", [cost], pictures["costs"], FRONT),
        Chapter("data", "The data", [sections.findings_table(findings)]),
        Chapter("overlap", "Splits without judgements", [overlap]),
        Chapter("judged", "Unjudged passages", [sections.judged_table(sections.deeply_judged(measures))]),
        Chapter("agreement", "Agreement of labels", [sections.agreement_table(read("agreements", Agreement))]),
        Chapter("depths", "Re-ranking depth", [sections.depths_table(depths)], pictures["depths"], SATURATION),
        Chapter("consistency", "Consistency", [sections.consistency_table(read("consistency", Consistency))]),
        Chapter("audits", "Indexes", [audits], pictures["audits"], SPEED),
        Chapter(
            "training",
            "Training",
            [sections.trainings_table(curves, selections, last)],
            pictures["training"],
            LOSSES,
            recipes if curves else {},
        ),
        Chapter("truncation", "Truncated texts", [truncated]),
        Chapter("filters", "Kept and dropped", [sections.filters_table(filters)]),
        Chapter("latency", "Latency", [latency]),
        Chapter("stages", "Time and memory", [stages]),
        Chapter("origin", "Provenance of the results", [sections.inputs_table(inputs)], facts=facts),
    ]
    made = {f"figures/{name}.svg": figures.draw(drawn, NO_DATA[name]) for name, drawn in panels.items()}
    linked = [f"figures/{name}.svg" for name, drawn in panels.items() if drawn]
    for table in (systems, compared, lists, cost, judged, audits, stages, latency, overlap):
        made |= {f"tables/{name}": text for name, text in files_of_table(table).items()}
        linked += [f"tables/{table.name}.csv"] if len(table.frame) else []
    made["tables/systems.tex"] = to_latex(sections.paper_table(systems, experiment.labels, comparisons))
    if options.papers:
        ours = [*published.values(measures, depths, latencies)]
        made |= reproduction(options, root.title, root.dataset, ours)
        linked.append("reproduction/index.html")
    page = render(
        "report.html.jinja",
        title=root.title,
        kicker=root.dataset,
        headlines=headlines(measures, comparisons, root.dataset, baseline),
        remarks=experiment.remarks(),
        warnings=[one.text for one in findings if one.warns],
        explorers=pages,
        sections=shown,
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

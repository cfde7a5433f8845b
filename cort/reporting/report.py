"""The report: one page with all tables and figures, and each of these as files."""

from __future__ import annotations

from dataclasses import dataclass

from cort.evaluation.comparisons import Comparisons
from cort.evaluation.depths import Depths
from cort.evaluation.disagreements import Disagreements
from cort.evaluation.leakage import Shared, describe
from cort.evaluation.overlap import Overlap
from cort.formats.artifacts import parse_assignments, read_artifact
from cort.models.truncation import Truncation, measure_texts, read_lengths
from cort.reporting import figures, panels, tables
from cort.reporting.audits import audit_blocks, audit_panels, audits_table
from cort.reporting.headline import headlines
from cort.reporting.inputs import read_curve, read_each, read_filter, read_measures, read_origin, read_stages
from cort.reporting.judged import judged_blocks, judged_table
from cort.reporting.latency import HEADINGS, Latencies, latency_blocks, latency_table, published_latencies
from cort.reporting.overlap import overlap_blocks, overlap_table
from cort.reporting.page import render, saturation_rows, systems_blocks, verdict_blocks
from cort.reporting.reproduction.fidelity import Reproduction
from cort.reporting.trainings import selection_rows, summarize
from cort.retrieval.audits import Audit
from cort.retrieval.weights import TunedWeights
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required
from cort.training.outcome import Selection

NO_DATA = {
    "recall": "No recall figure: recall was not evaluated at two or more cutoffs.",
    "depths": "No depth figure: nothing was re-ranked at several depths.",
    "audits": "No figure of graph indexes: none was measured.",
    "training": "No training figure: no training curve was given.",
}


@dataclass(frozen=True, kw_only=True)
class ReportOptions:
    """All that a report shows; what is empty is left out."""

    title: str = required(help="heading of the page")
    dataset: str = required(help="name of the dataset")
    measures_files: tuple[str, ...] = optional((), "measures of one system on one split each", "JSON")
    overlaps: tuple[str, ...] = optional((), "what `cort.overlap` wrote, a file per split without judgements", "JSON")
    description_of_systems: tuple[str, ...] = optional((), "how each system is made", "NAME=TEXT")
    tuned: tuple[str, ...] = optional((), "weights that `cort.tune` chose for a system", "NAME=JSON")
    baseline: str | None = optional(None, "system to which the differences are shown", "NAME")
    comparisons: tuple[str, ...] = optional((), "what `cort.compare` wrote, a file per split", "JSON")
    depths_files: tuple[str, ...] = optional((), "measures by number of re-ranked candidates", "JSON")
    audits: tuple[str, ...] = optional((), "what `cort.audit` wrote, a file per index and split", "JSON")
    curves: tuple[str, ...] = optional((), "training curves", "NAME=CSV")
    selections: tuple[str, ...] = optional((), "how the best model of each training was chosen", "NAME=JSON")
    last_models: tuple[str, ...] = optional((), "trainings whose last model is used, not the best", "NAME")
    settings_of_trainings: tuple[str, ...] = optional((), "main settings of each training", "NAME=TEXT")
    disagreements: tuple[str, ...] = optional((), "what `cort.disagreements` wrote", "JSON")
    models: tuple[str, ...] = optional((), "encoders and re-rankers whose texts are measured", "NAME=FOLDER")
    tokens: tuple[str, ...] = optional((), "token caches of a model, of passages or of queries", "NAME TEXT=ARROW")
    filters: tuple[str, ...] = optional((), "counts of what each filter kept and dropped", "NAME=JSON")
    benchmarks: str | None = optional(None, "benchmark files, <rule>/**/*.tsv; a missing folder is no error", "FOLDER")
    provenance: str | None = optional(None, "what `cort.provenance` wrote", "JSON")
    leakage: str | None = optional(None, "what `cort.leakage` wrote", "JSON")
    explorer: str | None = optional(None, "folder with an explorer per split, beside this report", "FOLDER")
    reproduction: str | None = optional(None, "what `cort.reproduction` wrote beside this report", "JSON")
    latency_files: tuple[str, ...] = optional((), "what `cort.latency` wrote", "JSON")


def describe_systems(options: ReportOptions) -> dict[str, str]:
    """Say how each system is made, with the weights that were chosen for it."""
    found = parse_assignments("--description-of-systems", options.description_of_systems)
    for name, path in parse_assignments("--tuned", options.tuned).items():
        weights = read_artifact(path, TunedWeights)
        parts = ", ".join(f"{part} {weight:g}" for part, weight in zip(weights.parts, weights.weights, strict=True))
        found[name] = f"{found.get(name, '')}: {parts} ({weights.queries} queries)".removeprefix(": ")
    return found


def truncation_rows(options: ReportOptions) -> list[tuple[str, str, Truncation]]:
    """Measure how much of its texts each model does not read: a row for each model and kind of text."""
    files: dict[str, dict[str, str]] = {}
    for key, path in parse_assignments("--tokens", options.tokens).items():
        name, _, text = key.rpartition(" ")
        files.setdefault(name, {})[text] = path
    rows = []
    for name, folder in parse_assignments("--models", options.models).items():
        settings = read_lengths(folder)
        if settings is None:
            raise input_error(
                "--models", folder, "the folder of an encoder or re-ranker", "name the one of its weights"
            )
        found = measure_texts(settings, folder, files.get(name, {}))
        rows += [(name, text, one) for text, one in found.items()]
    return rows


def build(options: ReportOptions) -> dict[str, str]:
    """Read all inputs and make every file: path in the output folder -> text, the page last."""
    curves = [read_curve(*pair) for pair in parse_assignments("--curves", options.curves).items()]
    chosen = parse_assignments("--selections", options.selections)
    selections = {name: read_artifact(path, Selection) for name, path in chosen.items()}
    filters = [read_filter(*pair) for pair in parse_assignments("--filters", options.filters).items()]
    measures = read_measures(options.measures_files)
    comparisons = [read_artifact(path, Comparisons) for path in options.comparisons]
    depths = read_each(options.depths_files, Depths)
    audited = audit_blocks([read_artifact(path, Audit) for path in options.audits], tables.names_of_measures(measures))
    stages = read_stages(options.benchmarks) if options.benchmarks else []
    reproduction = read_artifact(options.reproduction, Reproduction) if options.reproduction else None
    overlaps = [read_artifact(path, Overlap) for path in options.overlaps]
    shared = read_artifact(options.leakage, list[Shared]) if options.leakage else []
    latencies = [read_artifact(path, Latencies) for path in options.latency_files]
    systems = list(dict.fromkeys(one.system for one in measures))
    if systems and options.baseline is not None and options.baseline not in systems:
        expected = f"one of {', '.join(systems)}"
        raise input_error("--baseline", shorten(options.baseline), expected, "name a system that was measured")
    written = {
        "systems": tables.systems_table(measures, comparisons),
        "comparisons": tables.comparisons_table(comparisons),
        "lists": tables.lengths_table(comparisons),
        "judged": judged_table(measures),
        "audits": audits_table(audited),
        "stages": tables.stages_table(stages),
        "latency": latency_table(latencies),
        "overlap": overlap_table(overlaps),
    }
    splits = list(dict.fromkeys([*(one.split for one in measures), *(one.split for one in overlaps)]))
    look = panels.looks([*systems, *(one.system for one in depths)], options.baseline)
    drawn = {
        "recall": panels.recall_panels(measures, look),
        "depths": panels.depth_panels(depths, look),
        "audits": audit_panels(audited),
        "training": panels.training_panels(curves),
    }
    page = render(
        "report.html.jinja",
        report=options,
        figures={name: figures.draw_inline(found, name) for name, found in drawn.items()},
        headlines=headlines(options.dataset, measures, comparisons, options.baseline),
        systems=systems_blocks(measures, options.baseline, comparisons),
        splits=splits,
        overlaps=overlap_blocks(overlaps, options.baseline),
        leakage=[text for text in map(describe, shared) if text],
        descriptions=describe_systems(options),
        verdicts=verdict_blocks(comparisons),
        judged=judged_blocks(measures),
        comparisons=comparisons,
        saturation=saturation_rows(depths),
        audits=audited,
        trainings=[summarize(curve) for curve in curves],
        selections=selection_rows(selections, options.last_models),
        settings=parse_assignments("--settings-of-trainings", options.settings_of_trainings),
        disagreements=[read_artifact(path, Disagreements) for path in options.disagreements],
        reproduction=reproduction,
        filters=filters,
        truncations=truncation_rows(options),
        latencies=latency_blocks(latencies),
        latency_headings=HEADINGS,
        published_latencies=published_latencies(reproduction) if reproduction else [],
        stages=stages,
        origin=read_origin(options.provenance) if options.provenance else None,
    )
    files = {f"figures/{name}.svg": figures.draw(found, name, NO_DATA[name]) for name, found in drawn.items()}
    for name, table in written.items():
        files |= tables.in_formats(f"tables/{name}", table)
    return files | {"index.html": page}

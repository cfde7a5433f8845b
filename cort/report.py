"""Write the report: one self-contained HTML page, the tables as CSV, Markdown and LaTeX, the figures as SVG.

Reads: the settings of the results; measures per system and split; if given, comparisons with the baseline, measures by
       re-ranking depth, audits of graph indexes, training curves, how models were chosen, disagreements, the counts of
       filters, the benchmark files of the stages, latencies, the agreement of labels, and the provenance.
Writes: index.html, tables/{systems,comparisons,lists,judged,audits,stages,latency,overlap}.{csv,md,tex} and
       figures/{recall,depths,audits,training}.svg in the output folder. The page omits sections without input; the
       files are always written.
Usage: python -m cort.report --experiment experiment.yaml --measures-files measures/*.json --output-folder report
"""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path

from cort.evaluation.agreement import Agreement
from cort.evaluation.comparisons import Comparisons, by_pair, disagreement, needed
from cort.evaluation.curves import Depths
from cort.evaluation.disagreements import Disagreements
from cort.evaluation.inspection import Finding
from cort.evaluation.overlap import Overlap, P
from cort.experiment.experiment import Experiment
from cort.experiment.recipes import chosen_values, describe_training
from cort.experiment.stored import read_experiment
from cort.formats.artifacts import parse_assignments, read_artifact
from cort.models.truncation import Truncation, measure_texts, read_limits
from cort.reporting import figures, panels, sections, tables
from cort.reporting.headline import headlines
from cort.reporting.inputs import read_curve, read_each, read_measures, read_origin, read_stages, titled
from cort.reporting.page import render
from cort.reporting.reproduction.fidelity import Reproduction
from cort.retrieval.audits import Audit
from cort.retrieval.tuning import FoldedWeights, TunedWeights
from cort.runtime import cli
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import write_text
from cort.runtime.options import optional, options_class, required
from cort.training.outcome import Selection

log = logging.getLogger(__name__)

NO_DATA = {
    "recall": "No recall figure: recall was not evaluated at two or more cutoffs.",
    "depths": "No depth figure: nothing was re-ranked at several depths.",
    "audits": "No figure of graph indexes: none was measured.",
    "training": "No training figure: no training curve was given.",
}


@options_class
class Options:
    """Options of this stage."""

    experiment: str = required("YAML", "settings of the results")
    measures_files: tuple[str, ...] = optional((), "measures of one system on one split each", "JSON")
    overlaps: tuple[str, ...] = optional(
        (), "what `cort.analyze overlap` wrote, a file per split without judgements", "JSON"
    )
    tuned: tuple[str, ...] = optional((), "weights that `cort.tune` chose for a system", "NAME=JSON")
    comparisons: tuple[str, ...] = optional((), "what `cort.compare` wrote, a file per split", "JSON")
    depths_files: tuple[str, ...] = optional((), "measures by number of re-ranked candidates", "JSON")
    audits: tuple[str, ...] = optional((), "what `cort.audit` wrote, a file per index and split", "JSON")
    curves: tuple[str, ...] = optional((), "training curves", "NAME=CSV")
    selections: tuple[str, ...] = optional((), "how the best model of each training was chosen", "NAME=JSON")
    disagreements: tuple[str, ...] = optional((), "what `cort.analyze disagreements` wrote", "JSON")
    models: tuple[str, ...] = optional((), "encoders and re-rankers, to report how much they truncate", "NAME=FOLDER")
    lengths: tuple[str, ...] = optional((), "lengths of passages or queries in tokens of a model", "NAME TEXT=JSON")
    filters: tuple[str, ...] = optional((), "counts of examples that each filter kept and dropped", "NAME=JSON")
    benchmarks: str | None = optional(None, "benchmark files, <rule>/**/*.tsv; the folder may be missing", "FOLDER")
    provenance: str | None = optional(None, "what `cort.provenance` wrote", "JSON")
    inspection: str | None = optional(None, "what `cort.inspect` wrote", "JSON")
    agreements: tuple[str, ...] = optional((), "what `cort.analyze agreement` wrote, a file per pair of splits", "JSON")
    explorer: str | None = optional(None, "folder with an explorer per split, relative to the report", "FOLDER")
    reproduction: str | None = optional(None, "what `cort.reproduction` wrote next to this report", "JSON")
    latency_files: tuple[str, ...] = optional((), "what `cort.latency` wrote", "JSON")
    output_folder: str = required("FOLDER")


def describe_systems(experiment: Experiment, options: Options) -> dict[str, str]:
    """Describe how each system works, with its tuned weights."""
    texts = {name: system.describe() for name, system in experiment.systems.items()}
    for key, path in parse_assignments("--tuned", options.tuned).items():
        name, folded, split = key.partition(" on ")
        weights = read_artifact(path, FoldedWeights if folded else TunedWeights)
        shares = zip(*(fold.weights for fold in getattr(weights, "folds", [weights])), strict=True)
        ranges = (" to ".join(f"{share:g}" for share in sorted({min(own), max(own)})) for own in shares)
        parts = ", ".join(f"{part} {own}" for part, own in zip(weights.parts, ranges, strict=True))
        texts[name] += (
            f"{f'; {experiment.title_of_split(split)}' if folded else ''}: {parts} ({weights.queries} queries)"
        )
    return texts


def truncation_rows(options: Options) -> list[tuple[str, str, Truncation]]:
    """Measure how much of its texts each model truncates: a row for each model and kind of text."""
    files: dict[str, dict[str, str]] = {}
    for key, path in parse_assignments("--lengths", options.lengths).items():
        name, _, text = key.rpartition(" ")
        files.setdefault(name, {})[text] = path
    rows = []
    for name, folder in parse_assignments("--models", options.models).items():
        limits = read_limits(folder)
        if limits is None:
            fix = "name the folder that has its weights"
            raise input_error("--models", folder, "the folder of an encoder or re-ranker", fix)
        measured = measure_texts(limits, files.get(name, {}))
        rows += [(name, text, truncation) for text, truncation in measured.items()]
    return rows


def build(options: Options) -> dict[str, str]:
    """Read all inputs and build every file: path in the output folder -> text, the page last."""
    experiment = read_experiment(options.experiment)
    config = experiment.config
    baseline: str = config["evaluation"]["baseline"]
    chosen = parse_assignments("--selections", options.selections)
    measures = titled(experiment, read_measures(options.measures_files))
    comparisons = titled(experiment, (read_artifact(path, Comparisons) for path in options.comparisons))
    depths = titled(experiment, read_each(options.depths_files, Depths))
    audits = titled(experiment, (read_artifact(path, Audit) for path in options.audits))
    audited = sections.audit_blocks(audits, tables.names_of_measures(measures))
    curves = [read_curve(*pair) for pair in parse_assignments("--curves", options.curves).items()]
    stages = read_stages(options.benchmarks) if options.benchmarks else []
    reproduction = read_artifact(options.reproduction, Reproduction) if options.reproduction else None
    overlaps = [read_artifact(path, Overlap) for path in options.overlaps]
    latencies = titled(experiment, (read_artifact(path, sections.Latencies) for path in options.latency_files))
    systems = list(dict.fromkeys(result.system for result in measures))
    if systems and baseline not in systems:
        found, expected = f"the baseline {shorten(baseline)}", f"one of {', '.join(systems)}"
        raise input_error(options.experiment, found, expected, "name the measures of this experiment")
    written = {
        "systems": tables.systems_table(measures, comparisons),
        "comparisons": tables.comparisons_table(comparisons),
        "lists": tables.lengths_table(comparisons),
        "judged": sections.judged_table(measures),
        "audits": sections.audits_table(audited),
        "stages": tables.stages_table(stages),
        "latency": sections.latency_table(latencies),
        "overlap": sections.overlap_table(overlaps),
    }
    look = panels.looks([*systems, *(result.system for result in depths)], baseline)
    drawn = {
        "recall": panels.recall_panels(measures, look),
        "depths": panels.depth_panels(depths, look),
        "audits": sections.audit_panels(audited),
        "training": panels.training_panels(curves),
    }
    page = render(
        "report.html.jinja",
        title=config["title"],
        dataset=config["dataset"],
        baseline=baseline,
        explorer=options.explorer,
        last_models=[name for section, name in experiment.trainings if config[section][name]["checkpoint"] == "last"],
        sections=sections,
        tables=tables,
        figures={name: figures.draw_inline(shown, name) for name, shown in drawn.items()},
        headlines=headlines(config["dataset"], measures, comparisons, baseline),
        measures=measures,
        splits=list(dict.fromkeys([*(result.split for result in measures), *(result.split for result in overlaps)])),
        overlaps=overlaps,
        p=P,
        findings=read_artifact(options.inspection, list[Finding]) if options.inspection else [],
        agreements=[
            replace(
                agreement,
                first=experiment.title_of_split(agreement.first),
                second=experiment.title_of_split(agreement.second),
            )
            for agreement in (read_artifact(path, Agreement) for path in options.agreements)
            if agreement.pairs
        ],
        descriptions=describe_systems(experiment, options),
        remarks=experiment.remarks(),
        comparisons=comparisons,
        by_pair=by_pair,
        disagreement=disagreement,
        needed=needed,
        depths=depths,
        audits=audited,
        trainings=[sections.summarize(curve) for curve in curves],
        selections={name: read_artifact(path, Selection) for name, path in chosen.items()},
        settings={name: describe_training(values) for (_, name), values in chosen_values(experiment).items()},
        disagreements=titled(experiment, (read_artifact(path, Disagreements) for path in options.disagreements)),
        reproduction=reproduction,
        filters={
            name: counts
            for name, path in parse_assignments("--filters", options.filters).items()
            if (counts := read_artifact(path, dict[str, int]))
        },
        truncations=truncation_rows(options),
        latencies=latencies,
        published_latencies=sections.published_latencies(reproduction) if reproduction else [],
        stages=stages,
        origin=read_origin(options.provenance) if options.provenance else None,
    )
    files = {f"figures/{name}.svg": figures.draw(shown, name, NO_DATA[name]) for name, shown in drawn.items()}
    for name, table in written.items():
        files |= tables.in_formats(f"tables/{name}", table)
    return files | {"index.html": page}


def stage(options: Options) -> None:
    """Build and write all files; the page last, so that everything it links to exists."""
    files = build(options)
    for name, text in files.items():
        write_text(Path(options.output_folder) / name, text)
    measures = len(options.measures_files)
    log.info("%d measures files, %d files written to %s", measures, len(files), options.output_folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

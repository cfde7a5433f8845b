"""Drive every stage on a collection of MS MARCO's size and measure it: time, memory, disk, and how they grow.

For each size a collection with MS MARCO's counts and lengths is made up, and the stages work on it one after the
other. What is too much for a machine without GPU works on a part, which the table names; what neural stages would make
is drawn at random for the stages after them. Finished steps are remembered in the folder, so that a call goes on where
the last one was ended.

Usage: python -m scripts.rehearsal.rehearse --folder FOLDER --sizes 1/64 1/16 1/4 1 --report docs/scale.md
"""

import json
import logging
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

from cort.system import cli
from cort.system.options import optional, required
from scripts.bench.common import run_stage, timed, words
from scripts.rehearsal.measurements import Measurement, measure, read_measurements, remember, write_report
from scripts.rehearsal.steps import steps
from scripts.rehearsal.synthetic import generate
from scripts.sandbox import size_of

log = logging.getLogger(__name__)

SMALL = {"model_type": "bert", "hidden_size": 128, "num_hidden_layers": 1, "num_attention_heads": 4}
# Base models by the name of their folder. They have the same tokenizer, so one token cache is of both.
ARCHITECTURES = {
    "model": SMALL | {"intermediate_size": 256},
    "t5": {"model_type": "t5", "d_model": 128, "d_kv": 32, "d_ff": 256, "num_layers": 1, "num_heads": 4},
}


def rehearse(folder: Path, size: Fraction, model: Path, threads: int, wanted: Collection[str] = ()) -> None:
    """Go through the steps of one size that were not done before: those of these names or stages, or else all."""
    place = folder / str(size).replace("/", "-of-")
    done = {measured.name for measured in read_measurements(folder) if measured.size == str(size)}
    if "generate" not in done:
        seconds = timed(lambda: generate(place / "raw", size, 42)).seconds
        remember(folder, Measurement("generate", str(size), 0, "", seconds, disk=size_of(place)))
    for step in steps(place, size, model, threads):
        if step.name in done or (wanted and {step.name, step.stage}.isdisjoint(wanted)):
            continue
        if step.prepare:
            step.prepare()
        found = measure([sys.executable, "-m", f"cort.{step.stage}", *words(step.options)], place)
        found["kept"] = sum(map(size_of, step.outputs))
        remember(folder, Measurement(step.name, str(size), step.n, step.unit, **found, note=step.note))
        log.info("%s at %s: %.1f s, %.0f MB", step.name, size, found["seconds"], found["own"] / 1e6)


def make_models(folder: Path, size: Fraction) -> None:
    """Make the base models that are not there from the passages of a size."""
    raw, table = folder / "raw", folder / "passages.parquet"
    for name, architecture in ARCHITECTURES.items():
        if (folder / name / "config.json").exists():
            continue
        if not table.exists():
            generate(raw, size, 42)
            run_stage("collection", passages=raw / "collection.tsv", output=table)
        run_stage("base_model", architecture=json.dumps(architecture), passages=table, output=folder / name)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this program."""

    folder: str = required("FOLDER", "gets everything; 80 GB for the full size")
    sizes: tuple[Fraction, ...] = optional(tuple(Fraction(1, 4**power) for power in (3, 2, 1, 0)))
    threads: int = optional(len(os.sched_getaffinity(0)))
    steps: tuple[str, ...] = optional(
        (), "only these, by name or stage; the files that they read must be there", "NAME"
    )
    report: str | None = optional(None, "write the table here", "MD")


def stage(options: Options) -> None:
    """Rehearse, smallest first, with base models from the passages of the smallest; write the report."""
    folder = Path(options.folder).resolve()
    make_models(folder, min(*options.sizes, Fraction(1, 64)))
    for size in sorted(options.sizes):
        rehearse(folder, size, folder / "model", options.threads, options.steps)
    if options.report:
        write_report(Path(options.report), read_measurements(folder))


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

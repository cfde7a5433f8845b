"""Count the arithmetic of an experiment's neural stages, and say how long it would take on 1, 4 and 8 GPUs.

Operations are counted, hours are their quotient by a speed that is named: nothing here is measured. The speed of the
CoRT paper's GPU is what its 33 hours of training give for the operations counted here.

Usage: python -m scripts.rehearsal.neural_work --configfile config/msmarco.yaml --report docs/scale.md
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cort.system import cli
from cort.system.options import optional
from scripts.bench.common import markdown, put_between
from workflow.experiment.checks import load
from workflow.planning.dryrun import dry_run
from workflow.planning.facts import Model, gather, model_from
from workflow.planning.flops import HEAVY, work

EXA, HOUR = 1e18, 3600.0
GPUS = (1, 4, 8)
SHARDED = {"encode", "encode_tokens"}
# Models of the hub that are known without asking it: what their config.json says.
LARGE = {"hidden_size": 1024, "num_hidden_layers": 24, "intermediate_size": 4096}
KNOWN: Mapping[str, Model] = {
    "albert/albert-base-v2": model_from({"model_type": "albert", "embedding_size": 128, "vocab_size": 30_000}),
    "google-bert/bert-base-uncased": model_from({}),
    "google-bert/bert-large-uncased": model_from(LARGE),
    "google/electra-large-discriminator": model_from(LARGE),
}
# CoRT, appendix A.2: hours of training on one RTX 2080 Ti. An H100's peak in bf16, of which 40 % is a common share.
PAPERS_HOURS, PAPERS_JOB = 33.0, "train cort-e768"
H100 = 0.4 * 989e12


def count(configfile: str, folder: Path) -> dict[str, dict[str, float]]:
    """Operations of every neural job: stage -> job -> operations."""
    config = load(configfile)
    facts = gather(config, folder)
    sources = {name: model.get("pretrained", "") for name, model in config["base_models"].items()}
    facts = replace(facts, models={name: KNOWN.get(source, facts.models[name]) for name, source in sources.items()})
    found: dict[str, dict[str, float]] = {}
    for job in dry_run(["--configfile", configfile, "--cores", "1", "--forceall"], folder).jobs:
        if job.rule in HEAVY:
            found.setdefault(job.rule, {})[job.name] = work(job, config, facts).flops
    return found


def table(found: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Lines of the table, the sum of all stages last; a stage waits for the one before."""
    papers = found["train"].get(PAPERS_JOB, max(found["train"].values())) / (PAPERS_HOURS * HOUR)
    machines = [(speed, gpus) for speed in (papers, H100) for gpus in GPUS]
    names = [f"hours on {gpus} GPU{'s' * (gpus > 1)} of {_short(speed / 1e12)} TFLOP/s" for speed, gpus in machines]
    rows = {}
    for stage, jobs in found.items():
        whole = sum(jobs.values())
        # None is shorter than the longest job, unless it comes in shards.
        longest = 0.0 if stage in SHARDED else max(jobs.values())
        hours = [max(whole / gpus, longest) / speed / HOUR for speed, gpus in machines]
        rows[f"`{stage}`"] = [len(jobs), whole / EXA, *hours]
    rows["all"] = [sum(column) for column in zip(*rows.values(), strict=True)]
    cells = [[name, f"{jobs}", f"{work:.3f}", *map(_short, hours)] for name, (jobs, work, *hours) in rows.items()]
    return markdown(["stage", "jobs", "EFLOP", *names], cells)


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.1f}"


@dataclass(frozen=True, kw_only=True)
class Options:
    """What to count, and where to write it."""

    configfile: str = optional("config/msmarco.yaml", "the experiment", "YAML")
    report: str | None = optional(None, "put the table there instead of printing it", "MD")


def stage(options: Options) -> None:
    """Count, write."""
    lines = table(count(options.configfile, Path.cwd()))
    if options.report:
        put_between(Path(options.report), "counted", lines)
    else:
        sys.stdout.writelines(f"{line}\n" for line in lines)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

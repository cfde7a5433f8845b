"""Run a shipped experiment, unchanged, from its downloads to its report: small files, small models, this machine alone.

A copy of the project in a folder gets a catalogue `rehearsal.yaml` of small files that a server here gives, the first
mirror of each failing, and a model hub here gives small models under the names of the large ones. The workflow is
killed with SIGKILL whenever some part of its jobs is finished, and called again. In the end all must be there, nothing
be left to do, and no job have run again that was finished.

Usage: python -m scripts.dress.rehearse --data FOLDER [--configs config/msmarco.yaml ...] [--kills 2] [--slurm True]
"""

import logging
import os
import resource
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from cort.downloads import rehearsal
from cort.downloads.catalog import CATALOG, load_catalog
from cort.formats.artifacts import read_json
from cort.reporting.reproduction.fidelity import OFF, WITHIN
from cort.system import cli
from cort.system.errors import InputError, input_error
from cort.system.options import optional, required
from scripts.bench.common import print_table
from scripts.dress.files import contents_of, path_of, small_catalog
from scripts.dress.mirror import BROKEN, Mirror, serving
from scripts.dress.models import named_models, write_models
from scripts.drill import FINISHED, VARIABLE, kill_all, parse_log
from scripts.sandbox import copy_tree, executable
from scripts.slurm import SUBMITTING, slurm
from workflow.experiment.checks import extended, read

log = logging.getLogger(__name__)

# Seconds between two looks at what was said; characters of it that a failure shows.
INTERVAL, SHOWN = 0.5, 5_000
NOTHING = "Nothing to be done"
# What would lead past the server, or to other code than the copy's.
LEFT_OUT = (
    "HF_HUB_OFFLINE",
    "TRANSFORMERS_OFFLINE",
    "HTTP_PROXY",
    "http_proxy",
    "ALL_PROXY",
    "all_proxy",
    "PYTHONPATH",
)


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this program."""

    data: str = required("FOLDER", "with msmarco-sample, msmarco-meta and nfcorpus")
    configs: tuple[str, ...] = optional(("config/msmarco.yaml",), "experiments, one after the other", "YAML")
    kills: int = optional(2, "how often each is killed", "N")
    folder: str | None = optional(None, "new, is kept; else a temporary one, kept if something is wrong", "FOLDER")
    cores: int = optional(len(os.sched_getaffinity(0)), "jobs at a time, of a thread each", "N")
    slurm: bool = optional(False, "jobs go to a SLURM of this machine (scripts/slurm-sandbox)")


@dataclass
class Stage:
    """A copy of the project and the variables of its processes; `calls` counts what was called there."""

    tree: Path
    environment: dict[str, str]
    calls: int = 0


@dataclass
class Record:
    """What became of an experiment: its jobs, kills, seconds; messages of jobs that finished, also twice."""

    jobs: int = 0
    kills: int = 0
    seconds: float = 0
    cpu: float = 0
    finished: set[str] = field(default_factory=set)
    again: list[str] = field(default_factory=list)


def prepare(options: Options, folder: Path, mirror: Mirror) -> Stage:
    """Copy the project, make the small files and models, and have the server give them."""
    tree, hub = copy_tree(folder / "project"), folder / "hub"
    catalog = load_catalog(CATALOG)
    contents = contents_of(catalog, Path(options.data))
    mirror.named = {name: contents[name] for name, file in catalog.files.items() if file.urls}
    mirror.files = {path_of(url): contents[name] for name in mirror.named for url in catalog.files[name].urls}
    entries = small_catalog(catalog, contents, mirror.address, f"{mirror.address}/{BROKEN}")
    (tree / rehearsal.FILE).write_text(yaml.safe_dump(entries), encoding="utf-8")
    models = named_models([tree / name for name in options.configs])
    passages = contents["msmarco/collection.tsv"].decode().splitlines()
    write_models(list(models), [line.split("\t", 1)[1] for line in passages], hub)
    mirror.models = {name: (revision, hub / name) for name, revision in models.items()}
    kept = {name: value for name, value in os.environ.items() if name not in LEFT_OUT}
    # Threads of small models wait for each other more than they compute.
    own = {"HF_ENDPOINT": mirror.address, "HF_HOME": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    return Stage(tree, kept | own | {VARIABLE: secrets.token_hex(8)})


def run(stage: Stage, words: Sequence[str], jobs: float | None = None) -> tuple[int | None, str]:
    """Call a module in the copy, and kill it with all its jobs when so many of them are finished.

    :returns: the status, None if killed, and what was said.
    """
    stage.calls += 1
    said = stage.tree.parent / f"said.{stage.calls}.txt"
    with open(said, "wb") as output:
        process = subprocess.Popen(
            [executable("python"), "-m", *words],
            cwd=stage.tree,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=stage.environment,
            start_new_session=True,
        )
        try:
            while (status := process.poll()) is None:
                if jobs is not None and len(FINISHED.findall(said.read_text("utf-8", "replace"))) >= jobs:
                    break
                time.sleep(INTERVAL)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                kill_all(stage.environment[VARIABLE])
                process.wait()
    return status, said.read_text("utf-8", "replace")


def rehearse(stage: Stage, config: str, kills: int, arguments: Sequence[str]) -> Record:
    """Build an experiment in spite of some kills.

    :raises InputError: when a call fails, or something is missing, left to do or done twice.
    """
    call = ["--configfile", config, *arguments]
    record = Record(jobs=_count(config, *run(stage, ["snakemake", "--dry-run", "--quiet", "rules", *call])))
    began, before = time.perf_counter(), _cpu_seconds()
    status = None
    while status is None:
        # Plans count the large models of these names, for which this machine may be too small.
        words = ["snakemake", *call] if SUBMITTING[0] in call else ["workflow.plan", "--force", *_planned(call)]
        status, said = run(stage, words, record.jobs / (kills + 1) if record.kills < kills else None)
        started, finished = parse_log(said)
        record.again += sorted(record.finished & set(started))
        record.finished |= finished.keys()
        if status is None:
            record.kills += 1
            log.info("%s: killed, %d of %d jobs are done", config, len(record.finished), record.jobs)
    record.seconds, record.cpu = time.perf_counter() - began, _cpu_seconds() - before
    if status:
        raise input_error(config, f"status {status}: {said[-SHOWN:]}", "a whole build", "see above")
    if record.again:
        raise input_error(config, f"again: {'; '.join(record.again)}", "each job finished once", "see above")
    _, said = run(stage, ["snakemake", "--dry-run", *call])
    if NOTHING not in said:
        raise input_error(config, f"something left to do: {said[-SHOWN:]}", NOTHING, "see above")
    return record


def _planned(call: Sequence[str]) -> list[str]:
    """Write options as the plan takes them, which knows some itself."""
    return [*call[:4], "--", *call[4:]]


def _count(config: str, status: int | None, said: str) -> int:
    totals = [line.split()[1] for line in said.splitlines() if line.startswith("total ")]
    if status or not totals:
        raise input_error(config, said[-SHOWN:], "jobs to do", "see above")
    return int(totals[0])


def _cpu_seconds() -> float:
    """Seconds of processors that ended processes took, those alone that nobody killed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def computed(tree: Path, config: str) -> str:
    """Say how many published numbers an experiment computes."""
    dataset = extended(read(tree / config), config)["dataset"]
    path = tree / "results" / dataset / "report" / "reproduction" / "reproduction.json"
    if not path.is_file():
        return "none"
    papers = read_json(path).of(dict)["papers"]
    numbers = [number for paper in papers for number in paper["numbers"]]
    return f"{sum(number['mark'] in (WITHIN, OFF) for number in numbers)} of {len(numbers)}"


def stage(options: Options) -> None:
    """Rehearse, and say what it took."""
    folder = Path(options.folder or tempfile.mkdtemp(prefix="dress-")).resolve()
    if folder.exists() and any(folder.iterdir()):
        raise input_error(folder, "files", "an empty or a new folder", "name another as --folder")
    with serving() as mirror, slurm(folder / "slurm" if options.slurm else None) as (variables, words):
        scene = prepare(options, folder, mirror)
        scene.environment |= variables
        arguments = ["--cores", str(options.cores), "--max-threads", "1", *words]
        try:
            for config in options.configs:
                record = rehearse(scene, config, options.kills, arguments)
                counts = {"jobs": record.jobs, "kills": record.kills, "time": f"{record.seconds:.0f} s"}
                rest = {"processor time": f"{record.cpu:.0f} s", "published numbers": computed(scene.tree, config)}
                print_table([("experiment", config), *counts.items(), *rest.items()])
        except InputError:
            sys.stderr.write(f"all is in {folder}\n")
            raise
    if not options.folder:
        shutil.rmtree(folder)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Run a shipped experiment, unchanged, from its downloads to its report: small files, small models, this machine alone.

A copy of the project in a folder gets a catalogue `rehearsal.yaml` of small files that a server here gives, the first
mirror of each failing, and a model hub here gives small models under the names of the large ones. The workflow is killed
with SIGKILL when it has done some part of its jobs, as often as asked, and goes on. Then all must be there, and nothing
be left to do.

Usage: python -m scripts.dress.rehearse --data FOLDER [--config config/msmarco.yaml] [--kills 2] [--folder FOLDER]
"""

import json
import logging
import os
import re
import resource
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from cort.downloads import rehearsal
from cort.downloads.catalog import CATALOG, load_catalog
from cort.formats.yaml_files import read_yaml
from cort.system import cli
from cort.system.errors import InputError, input_error
from cort.system.options import optional, required
from scripts.dress.files import contents_of, path_of, small_catalog
from scripts.dress.mirror import BROKEN, Mirror, serving
from scripts.dress.models import named_models, write_models
from scripts.drill import VARIABLE, kill_all, parse_log
from scripts.sandbox import copy_tree, executable

log = logging.getLogger(__name__)

FINISHED = re.compile(r"^Finished jobid: ", re.MULTILINE)
JOBS = re.compile(r"^total +(\d+)", re.MULTILINE)
SECONDS_BETWEEN_LOOKS = 0.5
NOTHING = "Nothing to be done"


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of this program."""

    data: str = required("FOLDER", "with msmarco-sample, msmarco-meta and nfcorpus")
    config: tuple[str, ...] = optional(("config/msmarco.yaml",), "experiments, one after the other", "YAML")
    kills: int = optional(2, "how often each is killed", "N")
    folder: str | None = optional(None, "empty or new, kept; else a temporary one", "FOLDER")
    cores: int = optional(2, "of this machine", "N")


@dataclass(frozen=True)
class Stage:
    """A copy of the project with what surrounds it: variables of its processes, and what kills them."""

    tree: Path
    environment: Mapping[str, str]
    token: str


def prepare(options: Options, folder: Path, mirror: Mirror) -> Stage:
    """Copy the project, make the small files and models, and have the server give them."""
    if folder.exists() and any(folder.iterdir()):
        raise input_error(folder, "files", "an empty or a new folder", "name another as --folder")
    tree, hub = copy_tree(folder / "project"), folder / "hub"
    catalog = load_catalog(CATALOG)
    contents = contents_of(catalog, Path(options.data))
    mirror.named = {name: contents[name] for name, file in catalog.files.items() if file.urls}
    mirror.files = {path_of(url): contents[name] for name in mirror.named for url in catalog.files[name].urls}
    entries = small_catalog(catalog, contents, mirror.address, f"{mirror.address}/{BROKEN}")
    (tree / rehearsal.FILE).write_text(yaml.safe_dump(entries), encoding="utf-8")
    models = named_models([tree / name for name in options.config])
    texts = contents["msmarco/collection.tsv"].decode().splitlines()
    write_models(list(models), [line.split("\t", 1)[1] for line in texts], hub)
    mirror.models = {name: (revision, hub / name) for name, revision in models.items()}
    token = secrets.token_hex(8)
    left_out = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HTTP_PROXY", "http_proxy", "PYTHONPATH")
    kept = {name: value for name, value in os.environ.items() if name not in left_out}
    own = {"HF_ENDPOINT": mirror.address, "HF_HOME": str(folder / "cache"), VARIABLE: token}
    return Stage(tree, kept | own, token)


def run(stage: Stage, words: Sequence[str], jobs: float | None = None) -> tuple[int | None, str]:
    """Call a program in the copy; kill it and its jobs when so many are finished. Its status, None if killed; its words."""
    said = stage.tree.parent / "said.txt"
    with open(said, "wb") as output:
        process = subprocess.Popen(
            [executable("python"), "-m", *words],
            cwd=stage.tree, stdout=output, stderr=subprocess.STDOUT, env=dict(stage.environment), start_new_session=True,
        )  # fmt: skip
        while (status := process.poll()) is None:
            if jobs is not None and len(FINISHED.findall(said.read_text("utf-8", "replace"))) >= jobs:
                os.killpg(process.pid, signal.SIGKILL)
                kill_all(stage.token)
                process.wait()
                break
            time.sleep(SECONDS_BETWEEN_LOOKS)
    return status, said.read_text("utf-8", "replace")


def rehearse(stage: Stage, config: str, kills: int, cores: int) -> int:
    """Build an experiment in spite of some kills; the number of its jobs.

    :raises InputError: when a call fails, or something is missing or left to do.
    """
    arguments = ("--configfile", config, "--cores", str(cores))
    _, planned = run(stage, ("snakemake", "--dry-run", *arguments))
    totals = JOBS.findall(planned)
    if not totals:
        raise input_error(config, planned[-3_000:], "jobs to do", "see above")
    jobs = int(totals[0])
    log.info("%s: %d jobs", config, jobs)
    for kill in range(1, kills + 1):
        status, said = run(stage, ("workflow.plan", "--run", *arguments), jobs / (kills + 1))
        _check(config, status, said)
        log.info("%s: killed with %d of %d jobs done in this call", config, len(FINISHED.findall(said)), jobs)
    _check(config, *run(stage, ("workflow.plan", "--run", *arguments)))
    _, said = run(stage, ("snakemake", "--dry-run", *arguments))
    if NOTHING not in said:
        raise input_error(config, f"something left to do: {said[-3_000:]}", NOTHING, "see above")
    return jobs


def _check(config: str, status: int | None, said: str) -> None:
    if status:
        raise input_error(config, f"status {status}: {said[-5_000:]}", "a whole build", "see above")

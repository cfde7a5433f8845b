"""Shipped experiments, unchanged, from downloads to pages: files and models in small, mirrors that fail, and kills.

`make smoke-test` runs this; the variables SMOKE_DATA, SMOKE_CONFIGS, SMOKE_KILLS and SMOKE_SLURM choose.
"""

import csv
import os
import re
import time
from pathlib import Path

import pytest
import yaml

from cort.downloads.catalog import CATALOG, load_catalog, problem_with
from tests.support import small
from tests.support.common import ROOT
from tests.support.kills import FINISHED, Tree
from tests.support.misbehaving_server import serving
from tests.support.sandbox import copy_tree
from tests.support.slurm import Sandbox, variables

pytestmark = pytest.mark.usefixtures("real_starts")

CONFIGS = [f"config/{name}.yaml" for name in ("msmarco", "trec-car", "nfcorpus", "scifact")]
ASKED = os.environ.get("SMOKE_CONFIGS", "").split()
KILLS, ON_SLURM = int(os.environ.get("SMOKE_KILLS") or 2), bool(os.environ.get("SMOKE_SLURM"))
CASES = [*((config, ON_SLURM) for config in ASKED or CONFIGS), *([] if ASKED or ON_SLURM else [(CONFIGS[2], True)])]
SAMPLES = ROOT.parent / "shared" / "data"
DATA = Path(os.environ["SMOKE_DATA"]) if os.environ.get("SMOKE_DATA") else SAMPLES if SAMPLES.is_dir() else None
# What would lead past the server, or to other code than the copy's.
LEFT_OUT = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "PYTHONPATH")
LEFT_OUT += ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy")
SUBMITTING = ["--workflow-profile", "profiles/slurm", "--jobs", "6", "--slurm-init-seconds-before-status-checks", "4"]
# All that can be (docs/reproduction.md) but three latencies: the queries are no batch of 32. The
# other numbers of TREC-CAR's papers are of MS MARCO or of other groups' systems.
COMPUTED = {"config/msmarco.yaml": 269, "config/trec-car.yaml": 8}


@pytest.mark.parametrize("data", [None, SAMPLES])
def test_every_file_of_the_catalogue_has_a_small_one_with_the_same_facts(tmp_path, data):
    if data and not data.is_dir():
        pytest.skip("no samples of real data here")
    catalog = load_catalog(CATALOG)
    contents = small.contents_of(catalog, small.passages_of(data))
    with serving() as server:
        (tmp_path / CATALOG.name).write_text(small.publish(server, catalog, contents), "utf-8")
    found = load_catalog(tmp_path / CATALOG.name).files
    assert found.keys() == catalog.files.keys()
    for name, file in found.items():
        stated = {key for key, value in vars(file).items() if value not in (None, ())}
        assert stated == {key for key, value in vars(catalog.files[name]).items() if value not in (None, ())}, name
        (tmp_path / "copy").write_bytes(contents[name])
        assert problem_with(tmp_path / "copy", file) is None, name
    for name in ("msmarco/top1000.dev.tsv", "trec-dl/qrels.2019.txt", "trec-dl/qrels.2020.txt"):
        rows = [re.split("[ \t]", line) for line in contents[name].decode().splitlines()]
        pairs = {(row[0], row[1 if name.startswith("msmarco") else 2]) for row in rows}
        assert len(pairs) == len(rows), f"{name}: a passage twice"


def test_every_model_of_the_configs_has_a_small_one():
    assert small.named_models().keys() == small.MODELS.keys()


@pytest.fixture
def scene(tmp_path):
    assert DATA is None or DATA.is_dir(), f"{DATA}: no such folder; leave DATA out for made-up passages"
    with serving() as server:
        tree = copy_tree(tmp_path / "project")
        small.small_world(server, tree, DATA)
        # Threads of small models wait for each other more than they compute.
        own = {"HF_ENDPOINT": server.url, "HF_HOME": str(tmp_path / "cache"), "OMP_NUM_THREADS": "1"}
        yield Tree(tree, {name: value for name, value in os.environ.items() if name not in LEFT_OUT} | own)


@pytest.fixture
def sandbox(tmp_path, on_slurm, scene):
    """Words that send jobs to a SLURM of this machine, none if they run without."""
    if not on_slurm:
        yield []
        return
    sandbox = Sandbox(tmp_path)
    sandbox.start()
    scene.environment |= variables(tmp_path / "slurm")
    yield [*SUBMITTING]
    sandbox.stop()


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize(("config", "on_slurm"), CASES)
def test_a_shipped_experiment_runs_from_downloads_to_pages_in_spite_of_kills(scene, sandbox, config, on_slurm):
    words = ["--configfile", config, "--cores", str(len(os.sched_getaffinity(0)))]
    more = ["--max-threads", "1", *sandbox]
    planned = scene.call("snakemake", "--dry-run", "--quiet", "rules", *words, *more)[1]
    total = int(re.search(r"^total +(\d+)$", planned, re.MULTILINE)[1])
    # Plans count the large models of these names, for which this machine may be too small.
    # With Snakemake's own lines, which say when a job ends.
    more += ["--printshellcmds"]
    command = ["snakemake", *words, *more] if on_slurm else ["workflow.build", *words[:2], "--", *words[2:], *more]
    began, finished = time.monotonic(), total / (KILLS + 1)
    kills = [{"enough": lambda said: len(FINISHED.findall(said)) >= finished}] * KILLS
    status, said, killed = scene.build(*command, kills=kills)
    assert status == 0, said[-5_000:]
    assert "Nothing to be done" in scene.call("snakemake", "--dry-run", *words, *more)[1]
    print(f"\n{config}: {total} jobs, {killed} kills, {time.monotonic() - began:.0f} s")  # noqa: T201 - shown by -s
    check_pages(scene.folder, config)


def check_pages(tree, config):
    """The published numbers that can be computed are."""
    dataset = yaml.safe_load((tree / config).read_text("utf-8")).get("dataset")
    if dataset is None:
        # An ablation, which extends another.
        return
    results = tree / "results" / dataset
    if config in COMPUTED:
        with open(results / "report/reproduction/numbers.csv", encoding="utf-8", newline="") as file:
            assert sum(row["ours"] != "" for row in csv.DictReader(file)) == COMPUTED[config]

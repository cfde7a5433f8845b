"""The workflow as others use it: in another folder, from the usual place, as a module of another workflow."""

import os
import subprocess

import pytest
import yaml

from tests.support.forking import snakemake, succeed
from tests.support.sandbox import ROOT, copy_tree, executable

pytestmark = pytest.mark.slow

# Rules of the other workflow, of each kind, before the module and after it.
MODULE = """
configfile: "config.yaml"

rule two_commands:
    output: "before.txt"
    shell: "echo b > {{output}}; echo a >> {{output}}"

rule python:
    output: "python.txt"
    run:
        with open(output[0], "w") as file:
            file.write("run")

rule script:
    output: "script.txt"
    script: "script.py"

module cort:
    snakefile: "{snakefile}"
    config: config

use rule * from cort

rule pipeline:
    input: "before.txt"
    output: "after.txt"
    shell: "sort {{input}} | uniq > {{output}}; echo c >> {{output}}"
"""
PASSAGES = "results/mine/collection/passages.parquet"
CONFIG = {
    "dataset": "mine",
    "collection": {"passages": "passages.tsv"},
    "splits": {"test": {"queries": "queries.tsv", "qrels": "qrels.tsv"}},
    "systems": {"bm25": {"retrieve": "bm25"}},
}


@pytest.fixture
def folder(tmp_path):
    """A folder without the project, with an experiment."""
    script = 'with open(snakemake.output[0], "w") as file:\n    file.write("script")\n'
    files = {"script.py": script, "passages.tsv": "1\tone text\n", "queries.tsv": "1\tone\n", "qrels.tsv": "1 0 1 1\n"}
    for name, text in (files | {"config.yaml": yaml.safe_dump(CONFIG)}).items():
        (tmp_path / name).write_text(text, "utf-8")
    return tmp_path


def test_a_module_of_another_workflow_builds_its_results_there_and_leaves_its_rules_alone(folder):
    (folder / "Snakefile").write_text(MODULE.format(snakefile=ROOT / "workflow/Snakefile"), "utf-8")
    expected = {"before.txt": "b\na\n", "python.txt": "run", "script.txt": "script", "after.txt": "a\nb\nc\n"}
    succeed(folder, "snakemake", "--cores", 1, "--", PASSAGES, *expected)
    assert (folder / PASSAGES).is_file()
    assert {name: (folder / name).read_text() for name in expected} == expected


def test_the_workflow_runs_in_another_folder(folder):
    for snakefile in ("Snakefile", "workflow/Snakefile"):
        call = (f"--snakefile={ROOT / snakefile}", "--configfile", "config.yaml", "--cores", 1, "--", PASSAGES)
        output = succeed(folder, "snakemake", *call)
        assert "Using workflow specific profile" in output
    assert (folder / PASSAGES).is_file()


def test_a_dry_run_writes_nothing_into_a_project_that_many_share(folder):
    project = copy_tree(folder / "project")
    before = sorted(project.rglob("*"))
    for path in (project, *before):
        path.chmod(path.stat().st_mode & ~0o222)
    # As if nobody could write there, whom no permission stops, either.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": "1", "XDG_CACHE_HOME": str(folder / "caches")}
    command = [executable("snakemake"), "--snakefile", project / "Snakefile", "--configfile", "config.yaml", "-n"]
    found = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    assert "bm25_index" in found.stdout
    assert sorted(project.rglob("*")) == before
    assert (folder / "caches/cort/program.json").is_file()


def test_the_standard_place_of_a_snakefile_builds_the_whole_experiment(tmp_path):
    copy_tree(tmp_path)
    _, expected = snakemake(tmp_path, "--dry-run", "--quiet", "host")
    _, found = snakemake(tmp_path, "--snakefile", "workflow/Snakefile", "--dry-run", "--quiet", "host")
    jobs = [line for line in expected.splitlines() if line.startswith("report ")]
    assert jobs
    assert [line for line in found.splitlines() if line.startswith("report ")] == jobs

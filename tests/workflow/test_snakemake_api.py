"""What this workflow uses of Snakemake beyond what it documents; failures name workflow/snakemake_api.py."""

import inspect
import json
import os
import signal
import subprocess

import psutil
import pytest
from snakemake.api import Workflow
from snakemake.dag import DAG
from snakemake.iocontainers import Wildcards
from snakemake.jobs import Job, Reason
from snakemake.persistence import MetadataRecord, PersistenceBase
from snakemake.persistence.file import FilePersistence
from snakemake.rules import Rule
from snakemake_executor_plugin_slurm import Executor

from cort.runtime.interruption import ATTACHED
from tests.support.common import ROOT, wait_until
from tests.support.forking import snakemake
from tests.support.sandbox import executable
from workflow.snakemake_api import explain_error

GONE = "Snakemake has changed; adapt workflow/snakemake_api.py"
STAGES = """
from workflow import snakemake_api

rule a:
    output: "{dataset}/a"
    log: "logs/{dataset}/a.log"
    shell: "exec python -m cort.a > {output}"

rule b:
    output: "{dataset}/b"
    log: "logs/{dataset}/b.log"
    shell: "exec python -m cort.b > {output}"

onerror:
    print(*snakemake_api.failures(log))
"""
USED = {
    Workflow: "is_main_process nodes dag touch global_resources register_resource rules persistence executor_plugin "
    "executor_settings resource_settings",
    Rule: "shellcmd restart_times",
    DAG: "toposorted needrun needrun_jobs reason",
    Job: "benchmark cleanup jobid wildcards_dict",
    Executor: "__post_init__ run_job print_job_error report_job_success",
    PersistenceBase: "_params metadata",
    MetadataRecord: "shellcmd input params",
    Reason: "missing_output incomplete_output updated_input updated_input_run "
    "input_changed code_changed params_changed forced",
}


def test_names_are_there():
    for owner, names in USED.items():
        source = inspect.getsource(owner)
        found = {name for name in names.split() if hasattr(owner, name) or f"self.{name}" in source}
        found |= {name for name in names.split() if f" {name}:" in source}
        assert set(names.split()) == found, f"{owner.__name__}: {GONE}"


def test_params_are_recorded_as_their_repr(tmp_path):
    serialize = FilePersistence(path=tmp_path)._serialize_param_builtin
    params = [serialize(["--seed=1", "--title=a b"]), serialize({"cort/train.py": "1"})]
    assert params == ["['--seed=1', '--title=a b']", "{'cort/train.py': '1'}"], GONE


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """Write a workflow with a stage per name, whose code is given; it makes d/a and d/b."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))

    def write(**stages):
        (tmp_path / "Snakefile").write_text(STAGES, "utf-8")
        (tmp_path / "cort").mkdir()
        for name, code in {"__init__": "", **stages}.items():
            (tmp_path / "cort" / f"{name}.py").write_text(code, "utf-8")
        return tmp_path

    return write


def test_the_last_lines_name_the_jobs_that_failed_with_their_logs(tree):
    once = "import os, pathlib; path = pathlib.Path('tried'); there = path.exists(); path.touch(); exit(not there)"
    folder = tree(a=once, b="exit(1)")
    status, output = snakemake(folder, "d/a", "d/b", "--cores", "1", "--retries", "1", "--keep-going")
    assert status == 1
    assert [line for line in output.splitlines() if "failed; its log" in line] == ["b failed; its log is logs/d/b.log"]


def test_no_job_that_ctrl_c_ends_is_said_to_have_failed(tree, real_starts):
    folder = tree(a="import pathlib, time; pathlib.Path('begun').touch(); time.sleep(600)")
    command = [executable("snakemake"), "d/a", "--cores", "1"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    ) as process:
        wait_until((folder / "begun").exists)
        os.killpg(process.pid, signal.SIGINT)
        output, _ = process.communicate()
    assert process.returncode != 0
    assert "Error in rule a" in output, GONE
    assert "failed; its log" not in output


def test_a_stage_ends_with_snakemake_even_if_that_is_killed(tree, monkeypatch, real_starts):
    monkeypatch.setenv(ATTACHED, "1")
    wait = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    place = f"import sys; sys.path[:] = [{str(ROOT)!r}, *sys.path]; sys.modules.pop('cort')"
    folder = tree(a=f"{place}; from cort.runtime import interruption; interruption.end_with_parent(); {wait}")
    with subprocess.Popen([executable("snakemake"), "d/a", "--cores", "1"], cwd=folder) as process:
        job = int(wait_until(lambda: (folder / "pid").exists() and (folder / "pid").read_text()))
        process.kill()
    wait_until(lambda: not psutil.pid_exists(job) or psutil.Process(job).status() == psutil.STATUS_ZOMBIE)


def test_wildcards_are_mappings():
    assert "{split}".format(**Wildcards(fromdict={"split": "test"})) == "test", GONE
    assert json.dumps(Wildcards(fromdict={"split": "test"})) == '["test"]'


ERRORS = [
    ("WorkflowError in line 2:\na.yaml: seed: found 'a', expected b; c\na.yaml: depth: found 1, expected more; d", 2),
    ("MissingRuleException:\nNo rule to produce nix (if you use input functions ...", "nix: found no rule"),
    (
        "Missing input files for rule split:\n  output: x\n  affected files:\n    a.tsv",
        "a.tsv: found no file, expected",
    ),
    ("usage: snakemake [-h]\nsnakemake: error: unrecognized arguments: --nix", "snakemake: unrecognized arguments"),
    ("Traceback (most recent call last):\n  File x\nKeyError: 'depth'", "KeyError: 'depth'"),
    ("", "snakemake failed without a message"),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_an_error_of_snakemake_becomes_a_line_for_each_mistake(text, expected):
    found = explain_error(text)
    if expected == 2:
        assert found == "\n".join(text.splitlines()[1:])
    else:
        assert found.startswith(expected)
        assert len(found.splitlines()) == 1

"""Names of logs and benchmarks, what is imported for the rules, and which failed jobs Snakemake tries again."""

import os
import re
import subprocess
import sys

import pytest

from tests.support.common import ROOT
from tests.support.forking import snakemake
from tests.support.workflow import RULES, command_of
from workflow.params import code_of

ASK = """
import builtins, os, sys

found, original = set(), builtins.__import__


def note(name, globals=None, *more, **named):
    if str((globals or {}).get("__name__")).partition(".")[0] in ("cort", "workflow"):
        found.add(name.partition(".")[0])
    return original(name, globals, *more, **named)


builtins.__import__ = note
from snakemake import cli

try:
    cli.main(["--dry-run", "--quiet", "all", "--cores", "1"])
except SystemExit as leaving:
    assert not leaving.code
sys.stderr.write(" ".join(sorted(found - sys.stdlib_module_names - {"cort", "workflow"})))
sys.stderr.write("\\n" + os.environ.get("GOMP_SPINCOUNT", ""))
"""

RETRIES = """
from workflow.snakemake_api import retry_no_mistakes

retry_no_mistakes()


rule all:
    input:
        "wrong.txt", "full.txt", "killed.txt",


rule stage:
    output:
        "{name}.txt",
    log:
        "{name}.log",
    params:
        line=lambda wildcards: {
            "wrong": "12:00:00 ERROR qrels.tsv, row 3: found x, expected a number",
            "full": "12:00:00 ERROR cort.encode failed\\nMemoryError",
            "killed": "12:00:00 INFO cort.encode: --memory-mb 2000",
        }[wildcards.name],
    shell:
        "echo {wildcards.name} >> attempts; printf '{params.line}\\n' > {log}; exit 1"
"""


@pytest.mark.parametrize("name", sorted(RULES))
def test_logs_and_benchmarks_are_named_after_the_rule_and_the_wildcards_of_its_output(name):
    def plain(path):
        # Without the patterns of wildcards.
        return re.sub(r"{(\w+),[^{}]*}", r"{\1}", str(path))

    rule = RULES[name]
    wildcards = dict.fromkeys(re.findall(r"\{(\w+)", plain(rule.output[0])))
    of_job = ".".join(f"{{{wildcard}}}" for wildcard in wildcards if wildcard != "dataset")
    assert [*map(plain, rule.log)] == [f"logs/{{dataset}}/{f'{name}/{of_job}' if of_job else name}.log"]
    assert plain(rule.benchmark) == f"benchmarks/{{dataset}}/{name}/{of_job or name}.tsv"


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_has_the_code_of_its_stage(name):
    assert RULES[name].params.code == code_of(command_of(name))


def test_docstrings_of_another_python_are_others():
    assert RULES["pydocs"].params.python == sys.version_info[:3]


@pytest.fixture(scope="module")
def read():
    """What a process that reads the workflow has imported, and how long threads of its jobs wait for each other."""
    unset = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    ask = [sys.executable, "-c", ASK]
    done = subprocess.run(ask, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    return done.stderr.splitlines()[-2:]


def test_the_workflow_imports_little_beside_snakemake_and_pydantic(read):
    # Snakemake itself needs PyYAML and psutil. No numpy, which takes as long as all others.
    known = {"filelock", "psutil", "pydantic", "pydantic_core", "snakemake", "yaml"}
    assert {*read[0].split()} <= known


def test_threads_of_jobs_do_not_wait_long_with_a_core(read):
    # libgomp's own default is 300,000.
    assert 0 < int(read[1]) <= 30_000


def test_a_stage_that_logs_an_error_is_not_tried_again_unless_it_lacked_memory(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    (tmp_path / "Snakefile").write_text(RETRIES, "utf-8")
    # Of another run.
    (tmp_path / "killed.log").write_text("12:00:00 ERROR qrels.tsv: found nothing, expected judgements\n", "utf-8")
    os.utime(tmp_path / "killed.log", (0, 0))
    status, output = snakemake(tmp_path, "--cores", 1, "--retries", 2, "--keep-going", "--quiet", "all")
    assert status == 1, output
    attempts = (tmp_path / "attempts").read_text("utf-8").split()
    assert {name: attempts.count(name) for name in attempts} == {"wrong": 1, "full": 3, "killed": 3}

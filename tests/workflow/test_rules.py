"""Which jobs that failed Snakemake tries again (workflow/snakemake_api.py)."""

import os

from tests.support.common import ROOT
from tests.support.forking import snakemake

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

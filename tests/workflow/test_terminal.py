"""Lines on the terminal: when a job begins and ends, warnings, and nothing else."""

import logging
import re

from workflow import snakemake_api, terminal


def record(event=None, level=logging.INFO, text="", **fields):
    found = logging.LogRecord("snakemake", level, "", 0, text, None, None)
    found.__dict__.update(event=event, **fields)
    return found


def test_a_job_has_a_line_when_it_begins_and_one_when_it_ends(monkeypatch):
    seconds = iter([10.0, 12.0, 75.0, 80.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(seconds))
    lines = terminal.JobLines()
    said = [
        lines.line(one)
        for one in (
            record(text="Building DAG of jobs..."),
            record(snakemake_api.PLANNED, stats={"all": 1, "encode": 1, "total": 3}),
            record(snakemake_api.BEGUN, jobid=1, rule_name="encode", rule_msg="Encode the passages"),
            record(snakemake_api.BEGUN, jobid=2, rule_name="fuse", rule_msg=None),
            record(snakemake_api.BEGUN, jobid=0, rule_name="all", rule_msg=None),
            record(snakemake_api.FINISHED, job_id=1),
            record(snakemake_api.PROGRESS, done=1, total=3),
            record(snakemake_api.FINISHED, job_id=0),
            record(snakemake_api.PROGRESS, done=2, total=3),
        )
    ]
    said = [re.sub(r"^[0-9:]{8} ", "", line) for line in said if line]
    assert said == ["1 jobs: encode 1", "Encode the passages", "fuse", "1 of 2 done, 65.0 s: Encode the passages"]


def test_warnings_and_errors_pass_but_those_of_jobs_which_come_last():
    lines = terminal.JobLines()
    assert lines.line(record(level=logging.WARNING, text="Removed 2 locks")) == "Removed 2 locks"
    assert lines.line(record(snakemake_api.FAILED, logging.ERROR, "Error in rule encode")) is None
    assert lines.line(record(text="Nothing to be done (all files are up to date)."))

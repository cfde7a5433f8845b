import logging
import re
from types import SimpleNamespace

import pytest

from workflow import snakemake_api, terminal


def record(event=None, level=logging.INFO, text="", **fields):
    found = logging.LogRecord("snakemake", level, "", 0, text, None, None)
    found.__dict__.update(event=event, **fields)
    return found


def said(lines, *records):
    """Lines of records, without the time."""
    return [re.sub(r"^[0-9:]{8} ", "", line) for one in records for line in lines.lines(one)]


def begun(jobid, rule, message=None):
    return record(snakemake_api.BEGUN, jobid=jobid, rule_name=rule, rule_msg=message)


@pytest.fixture
def clock(monkeypatch):
    seconds = iter([10.0, 12.0, 75.0, 80.0])
    monkeypatch.setattr(terminal.time, "monotonic", lambda: next(seconds))


def test_a_job_has_a_line_when_it_begins_and_one_when_it_ends(clock):
    assert said(
        terminal.JobLines(terminal.Failures()),
        record(text="Building DAG of jobs..."),
        record(snakemake_api.PLANNED, stats={"all": 1, "encode": 1, "total": 3}),
        begun(1, "encode", "Encode the passages"),
        begun(2, "fuse"),
        begun(0, "all"),
        record(snakemake_api.FINISHED, job_id=1),
        record(snakemake_api.PROGRESS, done=1, total=3),
        record(snakemake_api.FINISHED, job_id=0),
        record(snakemake_api.PROGRESS, done=2, total=3),
    ) == ["1 job: encode 1", "Encode the passages", "fuse", "1 of 2 done, 1 min 05 s: Encode the passages"]


def test_a_failed_job_has_a_line_and_the_logs_come_last(clock):
    lines = said(
        terminal.JobLines(terminal.Failures()),
        begun(1, "encode", "Encode the passages"),
        record(snakemake_api.FAILED, logging.ERROR, "Error in rule encode", jobid=1, rule_name="encode"),
        record("error", logging.ERROR, 'RuleException:\nCalledProcessError in file "encoder.smk", line 9:\nCommand'),
        record(level=logging.ERROR, text="Exiting because a job execution failed. Look above for error messages"),
        record("error", logging.ERROR, snakemake_api.SOME_FAILED),
    )
    assert lines == ["Encode the passages", "failed, 2.0 s: Encode the passages", "Some jobs failed:"]


def test_an_interruption_is_one_line(capsys):
    failures = terminal.Failures()
    request = record(text="Terminating processes on user request, this might take some time.")
    killed = record(snakemake_api.FAILED, logging.ERROR, jobid=1, rule_name="encode", log=["logs/encode.log"])
    end = record("error", logging.ERROR, snakemake_api.SOME_FAILED)
    lines = said(terminal.JobLines(failures), request, killed, end)
    failures.add(killed)
    failures._show()
    assert capsys.readouterr().err == ""
    assert lines == ["Interrupted: running jobs are ended; run the same command to continue."]


def test_other_warnings_and_errors_pass():
    lines = terminal.JobLines(terminal.Failures())
    for text, level in (
        ("Removed 2 locks", logging.WARNING),
        ("RuleException:\nMissing output", logging.ERROR),
        ("Nothing to be done (all files are up to date).", logging.INFO),
    ):
        assert lines.lines(record(level=level, text=text)) == [text]


def test_a_long_list_of_jobs_is_wrapped_at_words_on_a_terminal_alone(monkeypatch):
    stats = {"encode_queries": 2, "retrieve": 10, "evaluate": 10}
    line = "22 jobs: encode_queries 2, retrieve 10, evaluate 10"
    assert said(terminal.JobLines(terminal.Failures()), record(snakemake_api.PLANNED, stats=stats)) == [line]
    monkeypatch.setattr(terminal.sys, "stderr", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setenv("COLUMNS", "24")
    lines = said(terminal.JobLines(terminal.Failures()), record(snakemake_api.PLANNED, stats=stats))
    assert lines == ["22 jobs:", "  encode_queries 2,", "  retrieve 10,", "  evaluate 10"]

"""What this workflow uses of Snakemake beyond what it documents; failures name workflow/snakemake_api.py."""

import dataclasses
import inspect
import json
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest
from snakemake.api import Workflow
from snakemake.dag import DAG
from snakemake.exceptions import MissingInputException, ProtectedOutputException
from snakemake.iocontainers import Wildcards
from snakemake.logging import logger
from snakemake.persistence import RECORD_FORMAT_VERSION, MetadataRecord, PersistenceBase
from snakemake.persistence.file import FilePersistence
from snakemake.resources import Resources
from snakemake.rules import Rule
from snakemake.scheduling import job_scheduler
from snakemake.scheduling.job_scheduler import JobScheduler
from snakemake.settings.types import ExecutionSettings, OutputSettings, ResourceSettings
from snakemake_interface_logger_plugins.common import LogEvent
from workflow.params import Words

from workflow import snakemake_api

GONE = "Snakemake has changed; adapt workflow/snakemake_api.py"


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Workflow, "is_main_process"),
        (Workflow, "nodes"),
        (Workflow, "global_resources"),
        (Workflow, "register_resource"),
        (Workflow, "globals"),
        (Workflow, "rules"),
        *((Rule, name) for name in ("shellcmd", "output", "benchmark", "conda_env", "set_log", "set_params")),
        *((Rule, f"{kind}_modifier") for kind in ("output", "log", "benchmark")),
        (Resources, "get"),
        (JobScheduler, "keepgoing"),
        (PersistenceBase, "_params"),
        (FilePersistence, "_record_path"),
        *(
            (DAG, name)
            for name in ("bfs", "dependencies", "depending", "needrun_jobs", "_n_until_ready", "_ready_jobs")
        ),
    ],
)
def test_names_are_there(owner, name):
    source = inspect.getsource(owner)
    assert hasattr(owner, name) or f"self.{name}" in source or f" {name}:" in source, f"{owner.__name__}.{name}: {GONE}"


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        (OutputSettings, "dryrun"),
        (ExecutionSettings, "lock"),
        *((ResourceSettings, f"overwrite_{name}") for name in ("scatter", "threads", "resources")),
    ],
)
def test_settings_are_there(settings, name):
    assert name in {field.name for field in dataclasses.fields(settings)}, f"{settings.__name__}.{name}: {GONE}"


def test_what_is_listened_to_are_events():
    events = LogEvent.WORKFLOW_STARTED, LogEvent.RUN_INFO, LogEvent.JOB_ERROR, LogEvent.JOB_FINISHED
    names = snakemake_api.STARTED, snakemake_api.PLANNED, snakemake_api.FAILED, snakemake_api.FINISHED
    assert tuple(map(str, events)) == names, GONE


def test_the_refusals_of_protected_files_and_of_missing_input_begin_as_before():
    assert f'"{snakemake_api.PROTECTED}"' in inspect.getsource(ProtectedOutputException), GONE
    assert f'"{snakemake_api.MISSING}' in inspect.getsource(MissingInputException), GONE


def test_messages_about_interruptions_and_failures_begin_as_before():
    scheduler, workflow = (inspect.getsource(module) for module in (job_scheduler, inspect.getmodule(Workflow)))
    assert all(words in scheduler for words in (snakemake_api.INTERRUPTED, snakemake_api.ABOUT_FAILURES[1])), GONE
    assert snakemake_api.SOME_FAILED.removeprefix("WorkflowError:\n") in workflow, GONE


def test_records_are_files_named_as_their_outputs_with_params_as_their_repr(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    persistence = FilePersistence(path=tmp_path / snakemake_api.FOLDER)
    serialize = persistence._serialize_param_builtin
    params = [serialize(Words(["--seed", "1"], {"seed": 1})), serialize({"cort/train.py": "1"})]
    assert params == ['settings {"seed": 1}', "{'cort/train.py': '1'}"], GONE
    outputs = {"results/one/a.trec", f"results/one/{'long' * 100}.trec"}
    record = MetadataRecord(rule="train", params=params, record_format_version=RECORD_FORMAT_VERSION)
    for output in outputs:
        persistence._write_record(output, record)
    found = list(snakemake_api.records())
    assert {output for _, output, _ in found} == outputs, GONE
    assert all((record["rule"], record["params"]) == ("train", params) for _, _, record in found), GONE
    for path, _, _ in found:
        snakemake_api.mark_incomplete(path)
    assert persistence._filter_incomplete_keys(outputs) == outputs, GONE
    persistence._write_locks("output", ["results/one/a.trec"])
    assert [path.read_text() for path in snakemake_api.lock_files()] == ["results/one/a.trec\n"], GONE


def test_unreadable_records_are_told_from_others(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    persistence = FilePersistence(path=tmp_path / snakemake_api.FOLDER)
    persistence._io_write(snakemake_api.RECORDS, {"rule": "train"}, "a.trec")
    persistence._io_write(snakemake_api.RECORDS, [1], "b")
    (snakemake_api.RECORDS / "a").write_text("{}")
    assert {output: record for _, output, record in snakemake_api.records()} == {"a.trec": {"rule": "train"}, "b": None}


def test_the_log_tells_of_starts_and_of_refusals(caplog):
    begun = []
    for number in range(2):
        snakemake_api.listen(
            {snakemake_api.STARTED: lambda _, number=number: begun.append(number)},
            {snakemake_api.PROTECTED: lambda: ["Do this."]},
        )
    try:
        logger.addHandler(caplog.handler)
        logger.warning("started", extra={"event": LogEvent.WORKFLOW_STARTED})
        logger.error(f"{snakemake_api.PROTECTED} of rule train")
    finally:
        logger.removeHandler(caplog.handler)
        logger.filters = [each for each in logger.filters if not isinstance(each, snakemake_api.LogFilter)]
    # The last one alone listens.
    assert begun == [1]
    said = {record.getMessage() for record in caplog.records if record.levelno == logging.ERROR}
    assert said == {"Write-protected output files of rule train\nDo this."}


def test_the_last_lines_are_the_errors_of_jobs_that_failed_in_the_end(tmp_path):
    logs = {"a": "09:00:00 INFO x\n09:00:01 ERROR a.tsv: found x\nb.tsv: found y\nTraceback (most recent\n"}
    logs |= {"b": "", "c": ""}
    for name, text in logs.items():
        (tmp_path / name).write_text(text)
    program = (
        "from types import SimpleNamespace as Record; from workflow.terminal import Failures\n"
        "failures = Failures()\n"
        "for number, name in enumerate('abc'): failures.add(Record(jobid=number, log=[name], rule_name='x'))\n"
        "failures.remove(Record(job_id=1)); print('Snakemake\\'s last line')"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == [
        "a: a.tsv: found x",
        "a: b.tsv: found y",
        "c: found no error in the log; the job may have been killed for lack of memory",
    ]


def test_wildcards_are_mappings():
    assert "{split}".format(**Wildcards(fromdict={"split": "test"})) == "test", GONE
    assert json.dumps(Wildcards(fromdict={"split": "test"})) == '["test"]'

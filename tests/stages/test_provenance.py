import hashlib
import json
import os
import platform
import shutil
import subprocess

import pyarrow as pa
import pytest

from cort import provenance
from cort.formats.tables import write_table
from cort.reporting.results import Input, read_origin
from tests.support.common import fake_nvidia_smi
from tests.support.vectors import shard, unit, without_precision


@pytest.fixture
def record(tmp_path, stage):
    """Write the record of some files; what it says."""

    def run(*inputs, computed=()):
        named = {"dataset": "tiny", "inputs": [*inputs], "computed": [*computed]}
        return json.loads(stage("provenance", **named, output=tmp_path / "provenance.json").read_text("utf-8"))

    return run


def test_each_input_is_listed_once_with_size_and_checksum_and_the_report_shows_them(tmp_path, record):
    texts = {"b.tsv": b"1\ttext\n" * 300_000, "a.tsv": b""}
    for name, text in texts.items():
        (tmp_path / name).write_bytes(text)
    expected = [(str(tmp_path / name), len(text), hashlib.sha256(text).hexdigest()) for name, text in texts.items()]
    found = record(*(tmp_path / name for name in ("b.tsv", "a.tsv", "b.tsv")))["inputs"]
    assert found == [dict(zip(("path", "bytes", "sha256"), one, strict=True)) for one in expected]
    facts, inputs = read_origin(tmp_path / "provenance.json")
    assert facts["Python"] == platform.python_version()
    assert "torch 2." in facts["Libraries"]
    assert inputs == [Input(*one) for one in expected]


def test_the_precisions_of_vectors_and_scores_are_recorded(tmp_path, record):
    vectors = shard(tmp_path / "a.arrow", ["d"], unit(1, 1))
    write_table(tmp_path / "b.parquet", pa.table({"a": [1]}).replace_schema_metadata({"precision": "bf16"}))
    files = [vectors, shutil.copy(vectors, tmp_path / "old.arrow"), tmp_path / "b.parquet"]
    without_precision(files[1])
    found = record(computed=files)["precision"]
    assert found == dict(zip(map(str, files), ["fp32", None, "bf16"], strict=True))


def test_program_and_machine_are_recorded(record):
    facts = record()
    assert facts["software"]["python"] == platform.python_version()
    assert facts["software"]["packages"]["snakemake"].startswith("9.")
    assert facts["hardware"]["cores"] == len(os.sched_getaffinity(0))
    with open("/proc/meminfo") as handle:
        kilobytes = int(handle.readline().split()[1])
    assert facts["hardware"]["memory_mb"] == pytest.approx(kilobytes / 1024, rel=0.01)


def test_the_commit_and_whether_files_differ_from_it(tmp_path):
    def git(*words):
        names = ("-c", "user.name=a", "-c", "user.email=a@b")
        done = subprocess.run(["git", "-C", tmp_path, *names, *words], check=True, capture_output=True, text=True)
        return done.stdout.strip()

    assert provenance.describe_code(tmp_path)["commit"] is None
    git("init", "--quiet")
    (tmp_path / "file").write_text("a")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    found = provenance.describe_code(tmp_path)
    assert (found["commit"], found["modified"]) == (git("rev-parse", "HEAD"), False)
    (tmp_path / "file").write_text("b")
    assert provenance.describe_code(tmp_path)["modified"] is True


def test_graphics_cards_are_those_of_the_driver_and_none_if_it_is_missing_or_fails(tmp_path, monkeypatch):
    cards = ["Card A, 40960 MiB, 550.54", "Card B, 40960 MiB, 550.54"]
    listing = "".join(f"echo '{card}'\n" for card in cards)
    for script, found in ((listing, cards), ("echo no driver\nexit 9", [])):
        monkeypatch.setenv("PATH", fake_nvidia_smi(tmp_path, script))
        assert provenance.describe_hardware()["gpus"] == found
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert provenance.describe_hardware()["gpus"] == []


def test_a_missing_input_is_named_and_nothing_is_written(tmp_path, refused):
    named = {"dataset": "tiny", "inputs": tmp_path / "none.tsv"}
    assert "none.tsv: No such file" in refused("provenance", **named, output=tmp_path / "out" / "provenance.json")

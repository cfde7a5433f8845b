"""What is accepted under today's code runs no more; settings that differ still do."""

import json
import os
import re

import pytest
import yaml

from scripts.sandbox import TINY, copy_with_tiny, mark_as_built, snakemake
from workflow import snakemake_api
from workflow.accept import accept, main, read_accepted
from workflow.params import code_of


def write_record(output, rule, params):
    from snakemake.persistence.file import FilePersistence

    persistence = FilePersistence()
    persistence._io_write(persistence._metadata_path, {"rule": rule, "params": params, "endtime": 1.5}, output)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Records of three rules' outputs, of which two have other code than today's."""
    monkeypatch.chdir(tmp_path)
    old = code_of("encode") | {"cort/models/encoder.py": "0" * 16}
    settings = 'settings {"encoders.cort.precision": "fp32"}'
    write_record("results/one/a.arrow", "encode", sorted([repr(old), settings]))
    write_record("results/one/b.arrow", "encode_queries", sorted([repr(old), settings]))
    write_record("results/one/c.json", "manifest", [repr(code_of("manifest"))])
    write_record("results/two/a.arrow", "encode", [repr(old)])
    write_record("results/one/d.json", "encode", None)
    return old


def recorded():
    return {output: record["params"] for _, output, record in snakemake_api.records()}


def test_records_of_the_rules_get_todays_code_and_nothing_else(made):
    before = recorded()
    assert accept("one", ["encode", "encode_queries", "manifest"]) == {"encode": 1, "encode_queries": 1, "manifest": 0}
    now = sorted([repr(code_of("encode")), 'settings {"encoders.cort.precision": "fp32"}'])
    assert recorded() == before | {"results/one/a.arrow": now, "results/one/b.arrow": now}
    assert all(record["endtime"] == 1.5 for _, _, record in snakemake_api.records())
    accepted = read_accepted("one")
    assert accepted.keys() == {"encode", "encode_queries"}
    (entry,) = accepted["encode"]
    assert (entry["old"], entry["new"]) == (made, code_of("encode"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", entry["date"])
    assert accept("one", ["encode"]) == {"encode": 0}
    assert read_accepted("one") == accepted


def test_a_rule_that_made_nothing_is_refused(made):
    with pytest.raises(ValueError, match="found train, expected one of encode, encode_queries, manifest; name a rule"):
        accept("one", ["train"])


def test_mistakes_of_the_config_are_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["train", "--configfile", "gone.yaml"]) == 1
    assert "gone.yaml: found no readable file" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{", "[]", '{"encode": 1}', '{"encode": ["x"]}'])
def test_a_broken_file_of_what_was_accepted_is_one_line_and_changes_nothing(made, text):
    before = recorded()
    os.makedirs("results/one", exist_ok=True)
    with open("results/one/accepted.json", "w", encoding="utf-8") as file:
        file.write(text)
    with pytest.raises(
        ValueError, match=r"^results/one/accepted\.json: found no JSON of what .*; restore it from a copy, or"
    ):
        accept("one", ["encode"])
    assert recorded() == before


@pytest.mark.slow
def test_protected_models_stay_after_an_edit_that_is_accepted(tmp_path):
    folder = copy_with_tiny(tmp_path / "tree")
    config = yaml.safe_load((folder / TINY).read_text("utf-8")) | {"protect": True}
    (folder / TINY).write_text(yaml.safe_dump(config), "utf-8")
    mark_as_built(folder, folder / TINY)
    models = [path for path in (folder / "results" / "tiny" / "encoders").rglob("*") if path.is_file()]
    for path in models:
        path.chmod(0o444)
    times = {path: path.stat().st_mtime_ns for path in (folder / "results").rglob("*") if path.is_file()}
    with open(folder / "cort" / "training" / "losses.py", "a", encoding="utf-8") as file:
        file.write("\nANOTHER = 1\n")
    said = snakemake(folder, "--dry-run", "--configfile", TINY)[1]
    assert re.search(r"^train +1$", said, re.MULTILINE) or "make accept RULES=train" in said
    python = ["--configfile", TINY]
    status, said = run_accept(folder, "train", "train_reranker", *python)
    assert status == 0, said
    assert re.search(r"^train: \d+ files stay valid under today's code$", said, re.MULTILINE)
    assert {path: path.stat().st_mtime_ns for path in times} == times
    said = snakemake(folder, "--dry-run", "--configfile", TINY)[1]
    assert not re.search(r"^(train|train_reranker|encode) +\d+$", said, re.MULTILINE), said[-3000:]
    # Provenance tells of it.
    assert re.search(r"^provenance +1$", said, re.MULTILINE)
    config["encoders"]["encoder"]["margin"] = 0.3
    (folder / "changed.yaml").write_text(yaml.safe_dump(config | {"protect": False}), "utf-8")
    said = snakemake(folder, "--dry-run", "--configfile", "changed.yaml")[1]
    assert re.search(r"^train +1$", said, re.MULTILINE) or "Write-protected" in said
    assert json.loads((folder / "results" / "tiny" / "accepted.json").read_text())["train"]


def run_accept(folder, *arguments):
    import subprocess
    import sys

    command = [sys.executable, "-m", "workflow.accept", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=os.environ.copy())
    return done.returncode, done.stdout + done.stderr

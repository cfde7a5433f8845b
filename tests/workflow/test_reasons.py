"""Snakemake's reasons in plain words, from its own texts."""

import json
import shlex
from dataclasses import replace

import pytest

from tests.tiny.generate import write_experiment
from tests.workflow.test_costs import job
from workflow.experiment.checks import load
from workflow.planning.changes import changed_settings, parse_command
from workflow.planning.dryrun import DryRun, Made, explain_error, part_arguments
from workflow.planning.reasons import explain, named_in, render, split_reason


@pytest.fixture
def config(tmp_path):
    return load(write_experiment(tmp_path / "tiny"))


def command(**options):
    words = ["python", "-m", "cort.x"]
    for name, value in options.items():
        words += [f"--{name.replace('_', '-')}", *(value if isinstance(value, list) else [value])]
    return shlex.join(map(str, words))


def words_on(config, before, now, rule="train", text=None, **wildcards):
    """What is said of a job whose command has changed."""
    changed = replace(job(rule, **wildcards), shell=command(**now))
    return list(changed_settings(changed, [Made((), command(**before), True)], config, text))


# Snakemake's texts.


def test_a_reason_is_parted_into_its_kinds():
    text = "Updated input files: cort/bm25.py, a; b.tsv; Params have changed since last execution: before: 1 now: 2"
    assert split_reason(text) == {
        "Updated input files": "cort/bm25.py, a; b.tsv",
        "Params have changed since last execution": "before: 1 now: 2",
    }
    assert split_reason("Forced execution") == {"Forced execution": ""}
    assert split_reason("Something new") == {"": "Something new"}
    assert split_reason("") == {}


def test_names_with_commas_are_found_in_a_list():
    files = ["data/a, b.tsv", "c.tsv", "d.tsv"]
    assert named_in("data/a, b.tsv, c.tsv", files) == ["data/a, b.tsv", "c.tsv"]
    assert named_in("", files) == []


def test_options_of_a_command_are_read_with_their_values():
    assert parse_command("python -m cort.x --k1 0.6 0.9 --title 'Tiny & whole' --flag") == {
        "k1": ["0.6", "0.9"],
        "title": ["Tiny & whole"],
        "flag": [],
    }


def test_a_command_line_is_parted_at_two_hyphens():
    assert part_arguments(["a", "--", "b", "--c"]) == (["a"], ["b", "--c"])
    assert part_arguments(["a"]) == (["a"], [])


ERRORS = [
    ("WorkflowError in line 2:\na.yaml: seed: found 'a', expected b; c\na.yaml: depth: found 1, expected more; d", 2),
    ("MissingRuleException:\nNo rule to produce nix (if you use input functions ...", "nix: found no rule"),
    (
        "Missing input files for rule split:\n  output: x\n  affected files:\n    a.tsv",
        "a.tsv: found nothing, expected",
    ),
    ("usage: snakemake [-h]\nsnakemake: error: unrecognized arguments: --nix", "snakemake: unrecognized arguments"),
    ("Traceback (most recent call last):\n  File x\nKeyError: 'depth'", "KeyError: 'depth'"),
    ("", "found no reason"),
]


@pytest.mark.parametrize(("text", "expected"), ERRORS)
def test_an_error_of_snakemake_becomes_a_line_for_each_mistake(text, expected):
    found = explain_error(text)
    if expected == 2:
        assert found == "\n".join(text.splitlines()[1:])
    else:
        assert found.startswith(expected)
        assert len(found.splitlines()) == 1


# Settings.


def test_a_changed_setting_is_named_as_in_the_config(config):
    found = words_on(config, {"batch_size": 8}, {"batch_size": 16}, encoder="encoder")
    assert found == ["the setting encoders.encoder.training.batch_size changed: 8 -> 16"]
    found = words_on(config, {"batch_size": 8}, {"batch_size": 16}, "train_reranker", reranker="cross")
    assert found == ["the setting rerankers.cross.training.batch_size changed: 8 -> 16"]


@pytest.mark.parametrize(
    ("rule", "option", "wildcards", "place"),
    [
        ("retrieve", "depth", {"split": "test", "system": "cort"}, "depth"),
        ("bm25", "depth", {"split": "train", "system": "bm25"}, "training_depth"),
        ("rerank", "depth", {"split": "test", "system": "cort+bm25-cross"}, "systems.cort+bm25-cross.depth"),
        ("score", "depth", {"split": "test", "reranker": "cross"}, "rerankers.cross.depth"),
        ("encode", "precision", {"encoder": "encoder"}, "encoders.encoder.precision"),
        ("train", "precision", {"encoder": "encoder"}, "encoders.encoder.training.precision"),
        ("onng", "edges", {"encoder": "encoder"}, "encoders.encoder.onng.edges"),
        ("triples", "first_rank", {"encoder": "encoder", "split": "train"}, "encoders.encoder.triples.first_rank"),
        ("pairs", "negatives", {"reranker": "cross", "split": "train"}, "rerankers.cross.pairs.negatives"),
        ("retrieve_graph", "width", {"split": "test", "system": "cort-onng"}, "systems.cort-onng.onng.epsilon"),
        ("hnsw", "ef_construction", {"encoder": "encoder"}, "encoders.encoder.hnsw.ef_construction"),
        ("retrieve_graph", "recall", {"split": "test", "system": "cort-hnsw"}, "systems.cort-hnsw.hnsw.recall"),
        ("audit", "widths", {"split": "test", "encoder": "encoder", "index": "hnsw"}, "audit.efs"),
        ("audit", "sample", {"split": "test", "encoder": "encoder", "index": "onng"}, "audit.queries"),
        ("audit", "depths", {"split": "test", "encoder": "encoder", "index": "onng"}, "audit.depths"),
        ("evaluate", "relevance_level", {"split": "test", "system": "bm25"}, "splits.test.relevance_level"),
        ("depths", "measures", {"split": "test", "system": "x"}, "evaluation.depth_measures"),
        ("disagreements", "number", {"split": "test"}, "evaluation.number_of_disagreements"),
        ("report", "title", {}, "title"),
        ("split", "seed", {"split": "train"}, "seed"),
        ("split", "hold_out", {"split": "train"}, "splits.validation.hold_out"),
    ],
)
def test_every_option_has_its_place_in_the_config(config, rule, option, wildcards, place):
    assert words_on(config, {option: 1}, {option: 2}, rule, **wildcards) == [f"the setting {place} changed: 1 -> 2"]


def test_measures_of_a_split_are_told_from_those_of_all(config):
    change = {"measures": ["RR@10"]}, {"measures": ["AP"]}, "evaluate"
    assert "setting evaluation.measures changed: RR@10 -> AP" in words_on(config, *change, split="test", system="x")[0]
    config["splits"]["test"]["measures"] = ["AP"]
    assert "setting splits.test.measures changed: RR@10 -> AP" in words_on(config, *change, split="test", system="x")[0]


def test_what_changes_speed_alone_is_not_named(config):
    assert words_on(config, {"threads": 1, "log": "a"}, {"threads": 2, "log": "b"}) == []


def test_files_of_the_workflow_are_no_settings(config):
    assert words_on(config, {"runs": ["results/a"]}, {"runs": ["results/a", "results/b"]}, "fuse") == []


def test_lists_say_what_came_and_what_went(config):
    found = words_on(config, {"measures": ["RR@10", "R@50"]}, {"measures": ["RR@10", "R@20"]}, "evaluate", system="x")
    assert found == ["the setting evaluation.measures changed: now without R@50, with R@20"]
    found = words_on(config, {"measures": ["RR@10", "R@50"]}, {"measures": ["R@50", "RR@10"]}, "evaluate", system="x")
    assert found == ["the order of evaluation.measures changed: R@50 RR@10"]


def test_settings_that_come_and_go_are_named(config):
    config["bm25"] = {"k1": 0.9, "b": 0.4}
    assert words_on(config, {}, {"k1": 0.9}, "bm25") == ["the setting bm25.k1 is new: 0.9"]
    assert words_on(config, {"k1": 0.9}, {}, "bm25") == ["the setting bm25.k1 is gone: 0.9"]


def test_keys_within_a_mapping_are_named_a_few_at_most(config):
    before = {"model": {"layers": 1, "hidden": 32}, "seed": 1, "depth": 5, "title": "a"}
    now = {"model": {"layers": 2, "hidden": 32}, "seed": 2, "depth": 6, "title": "b"}
    found = words_on(config, {"config": json.dumps(before)}, {"config": json.dumps(now)}, "provenance")
    assert found == [
        "the setting model.layers changed: 1 -> 2; the setting seed changed: 1 -> 2; "
        "the setting depth changed: 5 -> 6; 1 more changed"
    ]


def test_what_snakemake_does_not_name_did_not_cause_it(config):
    config["bm25"] = {"k1": 0.9, "b": 0.4}
    found = words_on(
        config, {"k1": 0.6, "b": 0.4}, {"k1": 0.9, "b": 0.5}, "bm25", text="before: '0.6' now: '0.9'"
    )  # fmt: skip
    assert found == ["the setting bm25.k1 changed: 0.6 -> 0.9"]
    # Nothing in the command tells what it is.
    assert words_on(config, {}, {}, "bm25", text="before: 7 now: <nothing exclusive>") == [
        "its settings changed: 7 -> nothing"
    ]


def test_whole_parts_that_come_and_go_are_named_as_such(config):
    before, now = {"systems": {"a": {"retrieve": "bm25"}}}, {"systems": {"b": {"retrieve": "bm25"}}}
    found = words_on(config, {"config": json.dumps(before)}, {"config": json.dumps(now)}, "provenance")
    assert found == ["the setting systems.a is gone; the setting systems.b is new"]


# Explanations.


def explained(config, *jobs, made=None, targets=()):
    run = DryRun(jobs, made or {})
    return render(run, explain(run, config), targets)


def test_causes_come_before_what_follows(config):
    first = replace(
        job("bm25", outputs=["run"], inputs=["cort/bm25.py"], split="test", system="bm25"),
        reason="Updated input files: cort/bm25.py",
    )
    second = replace(
        job("evaluate", inputs=["run"], split="test", system="bm25"),
        reason="Input files updated by another job: run",
    )
    text = explained(config, first, second)
    assert text == (
        "2 jobs would run.\n\nWhat changed or is not there:\n  bm25 test/bm25: cort/bm25.py was edited\n\n"
        "What follows, as its input is made again:\n  evaluate test/bm25: after bm25 test/bm25\n"
    )


def test_what_was_never_made_is_told_once_for_a_rule(config):
    jobs = [
        replace(job("split", outputs=[name], split=name), reason=f"Missing output files: {name}")
        for name in ("train", "test")
    ]
    assert "  split train, test: not made yet\n" in explained(config, *jobs)
    assert "  split train: train is missing\n" in explained(
        config, jobs[0], made={"train": Made((), "python", exists=False)}
    )


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("Updated input files: data.tsv", "its input data.tsv has other content"),
        ("Incomplete output files: out", "its last run was interrupted and left out incomplete"),
        ("Code has changed since last execution", "the command in its rule (split, under workflow/rules/) was edited"),
        ("Forced execution", "you asked for it to run in any case"),
        ("Set of input files has changed since last execution", "data.tsv came to its inputs, old.tsv left its inputs"),
        ("Another reason altogether", "Another reason altogether"),
    ],
)
def test_every_reason_has_words(config, reason, words):
    one = replace(job("split", outputs=["out"], inputs=["data.tsv"], split="test"), reason=reason)
    before = ("old.tsv",) if reason.startswith("Set of") else ("data.tsv",)
    text = explained(config, one, made={"out": Made(before, "python", exists=True)})
    assert f"  split test: {words}" in " ".join(text.split("\n      "))


def test_an_input_of_another_name_is_not_called_edited(config):
    one = replace(job("split", outputs=["out"], inputs=["b.tsv"]), reason="Updated input files: b.tsv")
    text = explained(config, one, made={"out": Made(("a.tsv",), "python", exists=True)})
    assert "  split: its input b.tsv is another one than before\n" in text


def test_nothing_to_do_is_said_so(config):
    there, gone = Made((), "x", exists=True), Made((), "x", exists=False)
    assert explained(config, made={"a": there, "b": there}) == (
        "Nothing would run: all 2 files of the experiment are up to date.\n"
    )
    assert explained(config, made={"a": there}, targets=["a"]) == "Nothing would run: a is up to date.\n"
    assert "b is missing, but all that was made from it is there" in explained(config, made={"a": there, "b": gone})

import json

import pytest
from snakemake.jobs import Reason
from snakemake.persistence import MetadataRecord, ParamsChange

from cort.runtime.command_line import words_of
from tests.support.jobs import job
from workflow.command_line import part_arguments
from workflow.why import SHOWN, changed, render


def options(**values):
    """Repr of options, as rules record it."""
    return repr(words_of(values))


def words(before, now):
    return list(changed([options(**before)], [options(**now)]))


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        (0.1, 0.2, "--key=0.1 -> --key=0.2"),
        (False, True, "--key=False -> --key=True"),
        (None, 0.9, "with --key=0.9"),
        (0.9, None, "without --key=0.9"),
        (["RR@10", "R@50"], ["RR@10", "R@20"], "without --key=R@50, with --key=R@20"),
        (["RR@10", "R@50"], ["R@50", "RR@10"], "in the order --key=R@50 --key=RR@10"),
        ([1, 2], [1, 2, 3], "with --key=3"),
        ("x" * 90, "y", f"--key={'x' * 53}… -> --key=y"),
    ],
)
def test_a_changed_option_is_shown_as_on_the_command_line(before, now, expected):
    assert words({"key": before, "same": 1}, {"key": now, "same": 1}) == [expected]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ({"margin": 0.1}, {"margin": 0.2}, "margin changed: 0.1 -> 0.2"),
        ({"a": 1}, {"a": 1, "folds": 5}, "folds is new: 5"),
        ({"a": 1, "folds": 5}, {"a": 1}, "folds is gone: 5"),
        ({"m": ["RR@10", "R@50"]}, {"m": ["RR@10", "R@20"]}, "m changed: now without R@50, with R@20"),
        ({"m": ["RR@10", "R@50"]}, {"m": ["R@50", "RR@10"]}, "m changed: now in the order R@50 RR@10"),
        ({"e": {"x": {"k": 1}}}, {"e": {"x": {"k": 2}}}, "e.x.k changed: 1 -> 2"),
        ({"e": {"x": {"k": 1}}}, {"e": {}}, "e.x is gone"),
    ],
)
def test_a_change_in_the_whole_config_is_named_by_its_path(before, now, expected):
    assert words({"config": json.dumps(before)}, {"config": json.dumps(now)}) == [f"--config: {expected}"]


def test_options_are_compared_whichever_params_they_are_in():
    assert list(changed([options(a=1), options(b=1)], [options(a=1, b=2)])) == ["--b=1 -> --b=2"]


def test_only_a_few_of_many_changes_are_named():
    before, now = ({f"a{number}.py": str(value) for number in range(SHOWN + 2)} for value in (1, 2))
    found = words({name[:2]: value for name, value in before.items()}, {name[:2]: value for name, value in now.items()})
    assert len(found) == SHOWN + 1
    assert found[-1] == "2 more settings changed"
    assert list(changed([repr(before)], [repr(now)]))[-1] == "2 more files of its code changed"


def test_files_of_code_are_named():
    before = {"cort/train.py": "1", "cort/training/losses.py": "1", "cort/old.py": "1"}
    now = {"cort/train.py": "1", "cort/training/losses.py": "2", "cort/new.py": "1"}
    assert list(changed([repr(before), options(a=1)], [options(a=1), repr(now)])) == [
        "cort/training/losses.py changed",
        "cort/new.py is now part of its code",
        "cort/old.py is no longer part of its code",
    ]


def test_other_params_are_shown_as_they_are():
    assert list(changed(["'raw'", "7", "['a']"], ["'clean'", "7", "['a']"])) == ["its params changed: 'raw' -> 'clean'"]
    assert list(changed(["7"], [])) == ["its params changed: 7 -> nothing"]
    # A mapping that is no code.
    assert list(changed(["{'a': 1}"], ["{'a': 2}"])) == ["its params changed: {'a': 1} -> {'a': 2}"]


def because(**fields):
    """Make Snakemake's reason; sets are its own to fill."""
    reason = Reason()
    for name, value in fields.items():
        if isinstance(value, list):
            getattr(reason, name).update(value)
        else:
            setattr(reason, name, value)
    return reason


def record(inputs, params):
    return MetadataRecord(shellcmd="x", input=inputs, params=params)


MADE = record(["data.tsv"], [])


def test_causes_come_before_what_follows():
    before, now = options(k1=0.9), options(k1=0.8)
    reason = because(params_changed=ParamsChange({before}, {now}))
    tests = [
        job("bm25", outputs=[name], split=name, reason=reason, params=[now], record=record([], [before]))
        for name in ("dev", "test")
    ]
    second = job(
        "evaluate", inputs=["test", "dev"], split="test", reason=because(updated_input_run=["dev", "test"]), record=MADE
    )
    assert render([*tests, second], [], None) == (
        "3 jobs would run.\n\nChanged or missing:\n"
        "  bm25 dev, test: --k1=0.9 -> --k1=0.8\n"
        "\nFollows, because an input is rebuilt:\n  evaluate test: after bm25 test, bm25 dev\n"
    )


def test_a_job_whose_input_is_made_again_shows_its_own_changes_too():
    first = job("bm25", outputs=["run"], reason=because(forced=True), record=MADE)
    made, reason = record(["run"], [options(depth=10)]), because(updated_input_run=["run"])
    second = job("evaluate", inputs=["run"], reason=reason, params=[options(depth=20)], record=made)
    text = render([first, second], [], None)
    assert "  bm25: it is forced to run\n" in text
    assert "  evaluate: --depth=10 -> --depth=20; after bm25\n" in text


def test_what_was_never_made_is_told_once_for_a_rule():
    reason = because(missing_output=["train", "test"], updated_input_run=["passages"])
    jobs = [job("split", outputs=[name], inputs=["passages"], split=name, reason=reason) for name in ("train", "test")]
    assert render(jobs, [], None).endswith("Changed or missing:\n  split train, test: not made yet\n")


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ({"missing_output": ["out"]}, "out is missing"),
        ({"missing_output": ["a", "b", "c", "d"]}, "a, b, c and 1 more are missing"),
        ({"updated_input": ["data.tsv"]}, "its input data.tsv has other content"),
        ({"updated_input": ["b.tsv"]}, "its input b.tsv replaces another file"),
        ({"incomplete_output": ["out"]}, "its last run was interrupted and left out incomplete"),
        ({"code_changed": True}, "the command in its rule (split, under workflow/rules/) was edited"),
        ({"params_changed": ParamsChange({"1"}, {"2"})}, "its params changed"),
        ({"forced": True}, "it is forced to run"),
        ({"input_changed": True}, "b.tsv came to its inputs, data.tsv left its inputs"),
        ({"software_stack_changed": True}, "Software environment definition has changed since last execution"),
        ({"updated_input_run": ["b.tsv"]}, "after a job before it"),
    ],
)
def test_every_reason_has_words(reason, expected):
    one = job("split", outputs=["out"], inputs=["b.tsv"], split="test", reason=because(**reason), record=MADE)
    assert f"  split test: {expected}\n" in render([one], [], None)


def test_nothing_to_do_is_said_so(tmp_path):
    (tmp_path / "a").touch()
    there, *gone = (job(outputs=[name], planned=False) for name in "abc")
    assert render([there], [], tmp_path) == "Nothing would run: all 1 files of the experiment are up to date.\n"
    assert render([there], ["a"], tmp_path) == "Nothing would run: a is up to date.\n"
    for jobs, missing, word in ((gone[:1], "b is", "it"), (gone, "b, c are", "them")):
        assert render([there, *jobs], [], tmp_path) == (
            f"Nothing would run: all targets are up to date. {missing} missing, but everything made from {word} "
            f"exists; name {word} as TARGET, or build {word} with snakemake, if you need {word}.\n"
        )


def test_a_command_line_is_parted_at_two_hyphens():
    assert part_arguments(["a", "--", "b", "--c"]) == (["a"], ["b", "--c"])
    assert part_arguments(["a"]) == (["a"], [])

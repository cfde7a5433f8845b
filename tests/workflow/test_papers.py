import copy

import pytest
import yaml
from snakemake.iocontainers import Wildcards

from cort.experiment.checks import ConfigError, load
from cort.experiment.experiment import Experiment
from tests.support.common import ROOT
from tests.support.configs import FILES, GONE, built, complaints
from tests.support.reporting import PAPER
from workflow.inputs import check_papers, consistency, reproduced, submissions
from workflow.settings import submission

PAPERS = sorted((ROOT / "config" / "papers").glob("*.yaml"))


def lines_about(tmp_path, changes):
    paper = copy.deepcopy(PAPER)
    for path, value in changes.items():
        *parents, last = [int(key) if key.isdigit() else key for key in path.split()]
        place = paper
        for key in parents:
            place = place[key]
        if value is GONE:
            del place[last]
        else:
            place[last] = value
    path = tmp_path / "paper.yaml"
    path.write_text(yaml.safe_dump(paper, sort_keys=False), "utf-8")
    with pytest.raises(ConfigError) as caught:
        check_papers([str(path)])
    lines = str(caught.value).split("\n")
    assert all(line.startswith(f"{path}: ") for line in lines)
    return [line.removeprefix(f"{path}: ") for line in lines]


T, P = "tables table-1", "figures figure-1 panels"
ROWS, PANELS = "tables.table-1.rows", "figures.figure-1.panels"
MEASURE = r"((RR|nDCG|AP)(@[1-9][0-9]*)?|(R|P|Success)@[1-9][0-9]*|latency(@[1-9][0-9]*)?|rank|unjudged@10)"
SED = "found 'sed', expected one of seed, file, table; did you mean seed?"
COUNT = "expected 3, one per column; fix it"
NAMED = "for the column 'MRR@10', expected one of row, column or table to name it"
KEYS = "expected one of number, title, note, system, split, measure, depth, tolerance, why, scale, columns, rows"
# Changes, what is said, and where, unless it is where the last change is.
MISTAKES = [
    ({"title": GONE}, "found no key title, expected it to be set; add it", "top level"),
    ({"title": 3}, "found 3, expected a string; put it in quotes"),
    ({f"{T} tolerence": "x"}, f"found the unknown key tolerence, {KEYS}; did you mean tolerance?", "tables.table-1"),
    ({f"{T} scale": "100"}, "found '100', expected a number; write 100.0, without quotes"),
    ({f"{T} scale": 0}, "found 0, expected more than 0; fix the value"),
    ({f"{T} columns 0 measure": "MRR@10"}, f"found the name 'MRR@10', expected a match of {MEASURE}; rename it"),
    ({f"{T} columns 1 tolerance": "far"}, "found 'far', expected one of near, exact; add it or fix the name"),
    ({f"{T} rows 0 values": [18.7, 290]}, f"found 2 values, {COUNT}"),
    ({f"{T} rows 0 values 0": "1"}, "found '1', expected a number or a mapping or null; write 1.0, without quotes"),
    ({f"{T} rows 0 changes": [1, 2]}, f"found 2 values, {COUNT}"),
    (
        {f"{T} rows 0 changes": [1, 2, 3], f"{T} rows 0 change_from": "at 5"},
        "found 'at 5', expected one of MRR@10, ms, at 4; did you mean at 4?",
    ),
    ({f"{T} rows 0 not_computed": "sed"}, SED),
    ({f"{T} rows 1 values 0 why": ["sed"]}, SED, f"{ROWS}.1.values.why"),
    ({f"{T} rows 1 systems": ["a", "b", "c", "d"]}, f"found 4 values, {COUNT}"),
    ({f"{T} rows 1 system": "a"}, "found both system and systems, expected one of them; remove one", f"{ROWS}.1"),
    (
        {f"{T} columns 0 measure": GONE, f"{T} rows 1 values 0": None},
        f"found no measure {NAMED}; add measure",
        f"{ROWS}.0",
    ),
    (
        {f"{T} split": GONE, f"{T} rows 1 split": "dev", f"{T} rows 0 values 1": None},
        f"found no split {NAMED}; add split",
        f"{ROWS}.0",
    ),
    ({f"{P} 0 measure": GONE}, "found no measure, expected it with the kind depths; add it", f"{PANELS}.0"),
    (
        {f"{P} 0 tolerance": GONE},
        "found saturation, expected it with kind depths and a tolerance of the panel; add the tolerance or remove it",
        f"{PANELS}.0.series.0.saturation",
    ),
    ({f"{P} 1 kind": "bars"}, "found 'bars', expected one of depths, consistency, systems; choose one"),
    (
        {f"{P} 1 series 0 points": [{"x": 1, "system": "a"}]},
        "found points with the kind consistency, expected them with systems; name a system",
    ),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[line for _, line, *_ in MISTAKES])
def test_mistake_in_a_paper_is_reported_in_one_line_and_no_other(tmp_path, mistake):
    changes, line, *place = mistake
    (place,) = place or [list(changes)[-1].replace(" ", ".")]
    assert lines_about(tmp_path, changes) == [f"{place}: {line}"]


def test_files_that_are_no_papers(tmp_path):
    bad, twice = tmp_path / "bad.yaml", tmp_path / "twice.yaml"
    bad.write_text("title: [")
    twice.write_text("title: a\ntitle: b\n")
    with pytest.raises(ConfigError) as caught:
        check_papers([str(tmp_path / "none.yaml"), str(bad), str(twice)])
    none, broken, repeated = str(caught.value).split("\n")
    assert none.endswith("none.yaml: found no readable file (No such file or directory), expected published numbers; "
                         "fix the name")  # fmt: skip
    assert "bad.yaml: row 1: found no YAML (" in broken
    assert "twice.yaml: row 2: found the key 'title' again (first in row 1)" in repeated


def test_two_papers_of_one_name(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "x.yaml").write_text(yaml.safe_dump(PAPER))
    with pytest.raises(ConfigError, match=r"^papers: found the name x 2 times, expected each once; rename a file$"):
        check_papers([str(tmp_path / "a" / "x.yaml"), str(tmp_path / "b" / "x.yaml")])


def test_the_papers_files_are_right_and_each_reason_and_tolerance_is_used():
    check_papers([str(path) for path in PAPERS])
    for path in PAPERS:
        paper = yaml.safe_load(path.read_text("utf-8"))
        used = set(words_at(paper, ("why", "tolerance", "not_computed")))
        assert {*paper["reasons"], *paper["tolerances"]} == used, path


def words_at(value, keys):
    """All texts under some keys, at any depth."""
    if isinstance(value, dict):
        for key, part in value.items():
            if key in keys:
                yield from [part] if isinstance(part, str) else part
            else:
                yield from words_at(part, keys)
    elif isinstance(value, list):
        for part in value:
            yield from words_at(part, keys)


def test_colbert_is_optimized_as_by_its_authors():
    training = load(ROOT / "config" / "ablations" / "colbert.yaml").config["rerankers"]["colbert-l2"]["training"]
    expected = {"weight_decay": 0, "schedule": "constant", "warmup_updates": 0, "max_gradient_norm": 2.0}
    assert {key: training.get(key) for key in expected} == expected


def test_files_of_a_paper(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(yaml.safe_dump(PAPER))
    folder = "results/{dataset}/report/reproduction"
    assert reproduced(Experiment({"papers": [str(path)]})) == [
        *(f"{folder}/tables/p.table-1.{ending}" for ending in ("csv", "md", "tex")),
        *(f"{folder}/figures/p.figure-{number}.svg" for number in (1, 2)),
    ]


def test_too_many_results_for_a_submission():
    lines = complaints({"depth": 1001, "audit efs": [1001]})
    assert lines[0].startswith("depth: found 1001, expected at most 1000 with submissions.leaderboard; lower it")


def test_systems_that_share_no_split_with_the_reference():
    changes = {
        "splits dev": FILES,
        "systems published run": {"test": "a.trec"},
        "systems other": {"run": {"dev": "b.trec"}},
        "evaluation consistency systems": ["bm25", "other"],
    }
    expected = "evaluation.consistency.systems: found other, which shares no split with published; name another"
    assert complaints(changes) == [expected]


def test_files_of_an_experiment():
    experiment = built({"splits dev": FILES, "systems published run": {"test": "a.trec"}})
    assert submissions(experiment) == [f"results/tiny/submissions/{name}" for name in ("leaderboard.tsv", "track.trec")]
    settings = {
        name: submission(experiment, Wildcards(fromdict={"submission": name}))
        for name in experiment.config["submissions"]
    }
    assert settings["leaderboard"] == []
    assert settings["track"] == ["--run-id", "tiny-1"]
    assert repr(settings["leaderboard"]) == 'settings {"submissions.leaderboard.form": "msmarco"}'
    assert repr(settings["track"]) == (
        'settings {"submissions.track.form": "trec", "submissions.track.run_id": "tiny-1"}'
    )
    # The reference has no run on dev.
    assert consistency(experiment) == [f"results/tiny/consistency/test/{name}.json" for name in ("bm25", "cort")]
    experiment = built({"evaluation consistency": GONE, "submissions": {}})
    assert (submissions(experiment), consistency(experiment)) == ([], [])

"""What experiments of papers make: submissions and consistency factors."""

from snakemake.iocontainers import Wildcards

from cort.config.load import load
from tests.support.common import ROOT
from tests.support.configs import FILES, GONE, built, complaints
from workflow.inputs import reported, submissions
from workflow.params import submission


def test_colbert_is_optimized_as_by_its_authors():
    training = load(ROOT / "config" / "ablations" / "colbert.yaml").config["rerankers"]["colbert-l2"]["training"]
    expected = {"weight_decay": 0, "schedule": "constant", "warmup_updates": 0, "max_gradient_norm": 2.0}
    assert {key: training.get(key) for key in expected} == expected


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
    given = {
        name: submission(experiment, Wildcards(fromdict={"submission": name}))
        for name in experiment.config["submissions"]
    }
    assert given == {"leaderboard": {}, "track": {"run_id": "tiny-1"}}
    # The reference has no run on dev.
    files = [f"results/tiny/consistency/test/{name}.json" for name in ("bm25", "cort")]
    assert reported(experiment, "consistency") == files
    experiment = built({"evaluation consistency": GONE, "submissions": {}})
    assert (submissions(experiment), reported(experiment, "consistency")) == ([], [])

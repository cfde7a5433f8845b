import pytest

from cort.config.comparisons import pairs
from cort.config.load import complete
from cort.evaluation.comparisons import Comparisons
from cort.formats.artifacts import write_artifact
from workflow import summary
from workflow.params import compared_systems


class Wildcards:
    split = "test"


def written(**evaluation):
    encoder = {"base_model": "small", "triples": {"system": "bm25"}}
    files = {name: {"queries": "q.tsv", "qrels": f"{name}.tsv"} for name in ("train", "test", "dev")}
    return {
        "dataset": "d",
        "collection": {"passages": "p.tsv"},
        "splits": {**files, "validation": {"hold_out": 9}},
        "base_models": {"small": {"pretrained": "folder"}},
        "encoders": {"first": encoder | {"training": {}}, "second": encoder | {"start": "first", "training": {}}},
        "rerankers": {"cross": {"base_model": "small", "pairs": {"system": "bm25"}, "training": {}}},
        "systems": {
            "bm25": {"retrieve": "bm25"},
            "one": {"retrieve": "first"},
            "two": {"retrieve": "second"},
            "graph": {"retrieve": "second", "onng": {"epsilon": 0.1}},
            "both": {"interleave": ["two", "bm25"]},
            "fused": {"fuse": {"systems": ["one", "both"], "method": "rrf"}},
            "re": {"rerank": "fused", "reranker": "cross"},
            "published": {"run": {"dev": "x.trec"}},
        },
        "evaluation": evaluation,
    }


@pytest.fixture
def experiment():
    return complete(written(contrasts=[["re", "both"], ["published", "one"]]), "d.yaml")


def test_systems_are_compared_with_parts_starts_and_what_is_asked_for(experiment):
    found = {
        "parts": [("both", "two"), ("both", "bm25"), ("fused", "one"), ("fused", "both"), ("re", "fused")],
        # The same search with another encoder; the graph has no partner.
        "starts": [("two", "one")],
        "contrasts": [("re", "both")],
    }
    assert pairs(experiment, "test") == found
    # Only where both have runs.
    assert pairs(experiment, "dev") == found | {"contrasts": [("re", "both"), ("published", "one")]}


def test_a_released_encoder_is_compared_with_its_training():
    config = written()
    config["encoders"] = {"as_is": {"pretrained": "m"}, "tuned": {"pretrained": "m", "training": {}}}
    config["encoders"]["other"] = {"pretrained": "m2"}
    config["systems"] = {name: {"retrieve": name} for name in ("bm25", "tuned", "other", "as_is")}
    config["systems"]["graph"] = {"retrieve": "as_is", "onng": {}}
    del config["rerankers"]
    assert pairs(complete(config, "d.yaml"), "test")["starts"] == [("tuned", "as_is")]


def test_smaller_vectors_are_systems_of_their_own_compared_with_the_whole_ones():
    config = written()
    config["encoders"]["first"] |= {"storage": "fp16", "matryoshka": True}
    config["systems"] |= {
        "half": {"retrieve": "second", "storage": "fp16"},
        "one-2": {"retrieve": "first", "dimension": 2},
        "one-2-int8": {"retrieve": "first", "dimension": 2, "storage": "int8"},
    }
    experiment = complete(config, "d.yaml")
    contrasts = [("half", "two"), ("one-2", "one"), ("one-2-int8", "one")]
    assert pairs(experiment, "test")["contrasts"] == contrasts
    small = experiment.systems["one-2-int8"]
    assert small.inputs("test") == experiment.systems["one"].inputs("test")
    assert small.options("test") == {"dimension": 2, "storage": "int8", "matryoshka": True}
    assert small.describe() == "encoder first, exact search, 2 first numbers of each vector, int8"
    assert [experiment.systems[name].fits_engines() for name in ("one", "one-2")] == [True, False]


def test_the_stage_is_given_these_pairs(experiment):
    given = compared_systems(experiment, Wildcards)
    assert given["systems"] == ["bm25", "one", "two", "graph", "both", "fused", "re"]
    assert (given["starts"], given["contrasts"]) == (["two=one"], ["re=both"])


def test_all_verdicts_are_printed_split_by_split(experiment, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(summary, "load", lambda path: experiment)
    monkeypatch.chdir(tmp_path)
    assert summary.main([]) == 0
    assert capsys.readouterr() == ("", "")
    (tmp_path / "results/d/comparisons").mkdir(parents=True)
    write_artifact("results/d/comparisons/dev.json", Comparisons("dev", "bm25", 7, 0.9, 100, 0.01, 1, [], []))
    assert summary.main([]) == 0
    assert capsys.readouterr().out == (
        "dev: differences over 7 queries, with the 90 % interval of each by itself; p of the paired randomisation test "
        "corrected by Holm's method over 0 comparisons, for each measure by itself; WIN and LOSS if at most 0.01\n"
    )
    pages = [tmp_path / "results/d/report" / name for name in ("index.html", "explore/dev/index.html")]
    for page in pages:
        page.parent.mkdir(parents=True)
        page.touch()
    assert summary.main([]) == 0
    assert capsys.readouterr().out.splitlines()[1:] == [page.as_uri() for page in pages]
    (tmp_path / "results/d/comparisons/test.json").write_text("{}")
    assert summary.main([]) == 1
    assert "test.json: found no 'split'" in capsys.readouterr().err


def test_a_broken_config_is_told(tmp_path, capsys):
    assert summary.main(["--configfile", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err

"""Which published numbers the shipped experiments compute, each of the others by name, and how that is found."""

import json
from collections import Counter

import pytest

from cort.evaluation.curves import Consistency, Depths
from cort.evaluation.measures import Judged, Measures
from cort.experiment.experiment import Experiment
from cort.formats.yaml_files import read_yaml
from cort.latency import device_sets, published_form, with_vectors
from cort.reporting.reproduction.fidelity import FAILS, HOLDS, Latency, Results, find, judge
from cort.reporting.reproduction.paper import Operand, Quantity, read_paper
from tests.support import coverage
from tests.support.common import ROOT
from tests.support.coverage import MSMARCO

LEAST = 287
# Every number that no shipped experiment computes, by the name of its reason in the paper's file.
NOT_COMPUTED = {
    ("repbert-2020", "test"): {
        f"table-1: {system}, MRR@10 test"
        for system in (
            "BM25 (Anserini)",
            "doc2query",
            "DeepCT",
            "docTTTTTquery",
            "RepBERT",
            "Best non-ensemble, non-BERT",
            "BM25 + BERT large",
        )
    },
    ("repbert-2020", "other-system"): {"table-1: Best non-ensemble, non-BERT, MRR@10 dev"},
    ("bert-reranking-2019", "eval"): {
        f"table-1: {system}, MS MARCO eval MRR@10"
        for system in ("BM25 (Lucene, no tuning)", "KNRM", "Conv-KNRM", "BERT large")
    },
    ("bert-reranking-2019", "other-system"): {
        "table-1: Co-PACRR, TREC-CAR MAP",
        "table-1: IRNet, MS MARCO dev MRR@10",
        "table-1: IRNet, MS MARCO eval MRR@10",
    },
}


@pytest.fixture(scope="module")
def experiments():
    """All shipped experiments with defaults, by path."""
    return coverage.shipped()


@pytest.fixture(scope="module")
def papers():
    """All shipped papers, by name."""
    found = [read_paper(path) for path in sorted((ROOT / "config" / "papers").glob("*.yaml"))]
    return {paper.name: paper for paper in found}


@pytest.fixture(scope="module")
def covered(experiments):
    """What is found of config/msmarco.yaml."""
    return coverage.of_experiment(MSMARCO, experiments)


# The shipped experiments.


def test_as_many_published_numbers_are_computed_and_the_others_are_these(covered):
    assert len(covered) == 302
    others = {}
    for one in covered:
        if one.by is None:
            content = read_yaml(ROOT / "config" / "papers" / f"{one.paper}.yaml")
            reasons = {text: name for name, text in content["reasons"].items()}
            others.setdefault((one.paper, reasons.get(one.reason, one.reason)), set()).add(one.place)
    assert others == NOT_COMPUTED
    assert sum(one.by is not None for one in covered) >= LEAST
    here = Counter(one.paper for one in covered if one.by == MSMARCO)
    assert here == {"cort-2021": 133, "cort-trec-2020": 43, "repbert-2020": 94, "bert-reranking-2019": 6}


def test_numbers_of_other_experiments_are_computed_where_they_are_said_to_be(covered):
    elsewhere = {(one.paper, one.by, one.number.where) for one in covered if one.by not in (None, MSMARCO)}
    assert elsewhere == {
        ("cort-2021", "config/ablations/colbert.yaml", "table-5"),
        ("cort-2021", "config/ablations/table-6.yaml", "table-6"),
        ("bert-reranking-2019", "config/trec-car.yaml", "table-1"),
    }


def test_a_number_is_computed_or_has_a_reason_and_not_both(experiments, papers):
    found = coverage.cover([*papers.values()], experiments)
    assert [one for one in found if one.by and one.number.not_computed] == []
    assert [one for one in found if one.reason == coverage.UNKNOWN] == []


def test_the_width_of_each_graph_search_is_audited(experiments):
    for path, experiment in experiments.items():
        config = experiment.config
        widths = {one["onng"]["epsilon"] for one in config["systems"].values() if "onng" in one}
        assert widths <= {*config["audit"]["epsilons"]}, path


def test_all_encoders_of_corts_loss_read_the_characters_that_its_code_leaves(experiments):
    for path in (path for path in experiments if path == MSMARCO or "/ablations/" in path):
        config = experiments[path].config
        names = [one["base_model"] for one in config["encoders"].values() if one["loss"] == "triplet"]
        assert {config["base_models"][name]["cleaning"] for name in names} <= {"cort"}, path


def test_the_plain_triplet_loss_is_trained_with_clipped_gradients(experiments):
    encoders = experiments["config/ablations/plain-triplet.yaml"].config["encoders"]
    assert encoders["cort-plain-triplet"]["training"]["max_gradient_norm"] > 0


def test_the_docs_have_the_same_counts(covered):
    text = (ROOT / "docs" / "papers.md").read_text("utf-8")
    for name, line in zip(("cort-2021", "cort-trec-2020", "repbert-2020", "bert-reranking-2019"),
                          ("CoRT (2021)", "CoRT at TREC 2020", "RepBERT (2020)", "Passage Re-ranking with BERT (2019)"),
                          strict=True):  # fmt: skip
        some = [one for one in covered if one.paper == name]
        assert f"| {line} | {len(some)} | {sum(one.by is not None for one in some)} |" in text
    assert f"| all | 302 | {sum(one.by is not None for one in covered)} |" in text


# Sentences.


def test_all_values_of_a_sentence_are_computed_by_one_experiment(experiments, papers):
    measured = [coverage.Measured(experiment) for experiment in experiments.values()]
    for paper in papers.values():
        for claim in paper.claims:
            sides = [side for one in claim.comparisons for side in (one.first, one.second) if isinstance(side, Operand)]
            named = [Quantity(system=name, split=one.split, measure=one.measure, depth=one.depth)
                     for one in sides for name in (one.system, one.minus) if name]  # fmt: skip
            assert any(all(map(one.computes, named)) for one in measured), claim.text


def published_results(papers):
    """The papers' own numbers instead of ours; where one is printed several times, the last."""
    numbers = [number for paper in papers for exhibit in paper.exhibits for number in exhibit.numbers if number.system]
    means, depths, latencies = {}, {}, {}
    for one in numbers:
        place = one.system, one.split
        if one.measure.startswith("latency"):
            latencies.setdefault(place, {})[one.measure.partition("@")[2] or "1"] = one.published
        elif one.depth is not None:
            depths.setdefault(place, {}).setdefault(one.measure, {})[one.depth] = one.published
        elif one.quantity == "measure" and one.measure != "rank":
            means.setdefault(place, {})[one.measure] = one.published
    curves = {
        place: Depths(*place, 1, 1, sorted(some[name]), {name: [some[name][depth] for depth in sorted(some[name])]}, {})
        for place, some in depths.items()
        for name in some
    }
    return Results(
        {place: Measures(*place, 1, 1, mean) for place, mean in means.items()},
        curves,
        {},
        {place: Latency(*place, values) for place, values in latencies.items()},
    )


@pytest.mark.parametrize("name", ["cort-2021", "cort-trec-2020", "repbert-2020", "bert-reranking-2019"])
def test_sentences_hold_of_the_papers_own_numbers(papers, name):
    own = published_results([papers[name]])
    found = {claim.text: [one.outcome for one in judge(claim, own).comparisons] for claim in papers[name].claims}
    failing = {text for text, outcomes in found.items() if FAILS in outcomes}
    slip = "Merging CoRT with BM25 slightly increases MRR and nDCG, and recall more."
    assert failing == ({slip} if name == "cort-2021" else set())
    assert sum(outcomes.count(HOLDS) for outcomes in found.values()) >= 3


def test_relative_changes_are_those_of_the_papers_numbers(papers):
    rows = [cells for table in papers["repbert-2020"].tables for _, cells in table.rows]
    changed = [(one, cells[one.change_from]) for cells in rows for one in cells if one and one.change is not None]
    assert len(changed) == 60
    # The paper computed them before it rounded all three.
    half = 0.0005
    for one, base in changed:
        least = (one.published - half) / (base.published + half) - 1.005
        assert least <= one.change <= (one.published + half) / (base.published - half) - 0.995, one


# How it is found.

CONFIG = {
    "dataset": "toy",
    "splits": {
        "dev": {"queries": "q", "qrels": "j", "measures": ["RR@10", "RR@1000"]},
        "blind": {"queries": "q"},
    },
    "depth": 100,
    "lexical": {"bm25": {}},
    "encoders": {"e": {}},
    "rerankers": {"r": {"depth": 50}},
    "systems": {
        "bm25": {"retrieve": "bm25"},
        "e": {"retrieve": "e"},
        "e+bm25": {"interleave": ["e", "bm25"]},
        "both": {"interleave": ["e", "bm25"]},
        "graph": {"retrieve": "e", "onng": {"epsilon": 0.1}},
        "re": {"rerank": "e+bm25", "reranker": "r"},
        "far": {"run": {"other": "x"}},
    },
    "evaluation": {
        "depths": [1, 10, 100],
        "depth_measures": ["RR@10"],
        "consistency": {"reference": "bm25", "systems": ["e"], "depths": [10]},
    },
    "latency": {"split": "dev", "systems": ["bm25", "e", "e+bm25", "both", "graph", "re"], "gpus": 2},
}  # fmt: skip
KINDS = [
    ({}, True),
    ({"system": None}, False),
    ({"system": "none"}, False),
    ({"system": "far"}, False),
    ({"split": "blind"}, False),
    ({"split": "none"}, False),
    ({"measure": "R@5"}, False),
    ({"measure": "rank"}, True),
    ({"measure": "P@10"}, True),
    ({"measure": "unjudged@10"}, True),
    ({"measure": "unjudged@10", "split": "blind"}, False),
    ({"system": "re", "depth": 10}, True),
    ({"system": "re", "depth": 50}, True),
    ({"system": "re", "depth": 100}, False),
    ({"system": "re", "depth": 10, "measure": "R@5"}, False),
    ({"depth": 10}, False),
    ({"system": "re", "quantity": "saturation", "depths": (1, 10)}, True),
    ({"system": "re", "quantity": "saturation", "depths": (1, 2)}, False),
    ({"system": "e", "measure": "consistency", "depth": 10}, True),
    ({"system": "e", "measure": "consistency", "depth": 5}, False),
    ({"system": "re", "measure": "consistency", "depth": 10}, False),
    ({"measure": "latency"}, True),
    ({"measure": "latency@32"}, True),
    ({"measure": "latency@8"}, False),
    ({"measure": "latency", "split": "blind"}, False),
    ({"measure": "latency", "system": "e-queries"}, True),
    ({"measure": "latency", "system": "e-2gpus"}, True),
    ({"measure": "latency", "system": "e-3gpus"}, False),
    ({"measure": "latency", "system": "e-2gpus+bm25"}, True),
    ({"measure": "latency", "system": "both-2gpus"}, True),
    ({"measure": "latency", "system": "graph-2gpus"}, False),
    ({"measure": "latency", "system": "bm25-2gpus"}, False),
    ({"measure": "latency", "system": "re"}, True),
    ({"measure": "latency@32", "system": "re"}, False),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "expected"), KINDS, ids=[json.dumps(changes) for changes, _ in KINDS])
def test_what_an_experiment_measures(changes, expected):
    asked = {"system": "bm25", "split": "dev", "measure": "RR@10", **changes}
    assert coverage.Measured(Experiment(CONFIG)).computes(Quantity(**asked)) is expected


def test_without_latency_and_consistency_there_is_none():
    config = {**CONFIG, "evaluation": {"depths": [1], "depth_measures": ["RR@10"]}}
    del config["latency"]
    for measure in ("latency", "consistency"):
        asked = Quantity(system="e", split="dev", measure=measure, depth=10 if measure == "consistency" else None)
        assert not coverage.Measured(Experiment(config)).computes(asked)


def test_names_of_latencies_are_those_that_are_written(experiments):
    experiment = experiments[MSMARCO]
    rows, latency = [], experiment.config["latency"]
    for device in device_sets(latency["gpus"]):
        names = latency["systems"]
        for name in names if device == "1 GPU" else with_vectors(experiment, names):
            batched = all(experiment.systems[part].batches for part in experiment.with_parts([name]))
            times = {key: {"mean": 1.0} for key in ("tokenize", "encode", "search", "sequential")}
            row = {"system": name, "device": device, "milliseconds": times}
            rows += [row | {"batch": size} for size in ((1, 32) if batched else (1,))]
    written = {
        ("dev", one["system"], size)
        for one in published_form(experiment, "dev", rows)
        for size in one["milliseconds"]
    }  # fmt: skip
    assert coverage.Measured(experiment).latencies == written


def test_what_is_covered_is_found_in_results():
    """A value is found of just what an experiment measures, if its results are there."""
    judged = Judged(5, 3, results=8, unjudged=2, mean={"P@10": 0.3})
    results = Results(
        {("bm25", "dev"): Measures("bm25", "dev", 1, 1, {"RR@10": 0.5, "RR@1000": 0.25}, judged=judged)},
        {("re", "dev"): Depths("re", "dev", 1, 1, [1, 10, 50], {"RR@10": [0.1, 0.2, 0.3]}, {})},
        {("e", "dev"): Consistency("e", "dev", "bm25", 1, [10], [0.75])},
        {("bm25", "dev"): Latency("bm25", "dev", {"1": 3.0})},
    )
    asked = {"split": "dev"}
    assert find(Quantity(system="bm25", measure="rank", **asked), results) == 4
    assert find(Quantity(system="bm25", measure="P@10", **asked), results) == 0.3
    assert find(Quantity(system="bm25", measure="unjudged@10", **asked), results) == 0.25
    assert find(Quantity(system="re", measure="RR@10", depth=50, **asked), results) == 0.3
    assert find(Quantity(system="e", measure="consistency", depth=10, **asked), results) == 0.75
    assert find(Quantity(system="e", measure="consistency", depth=5, **asked), results) == (
        "no consistency factor of e on dev at 5"
    )

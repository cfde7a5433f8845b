"""Which published numbers the shipped experiments compute, and how that is found."""

from collections import Counter
from types import SimpleNamespace

import pytest

from cort.reporting.published import mean_latencies
from cort.reporting.results import LatencyRow
from tests.support import coverage
from tests.support.common import ROOT
from tests.support.coverage import MSMARCO

PAPERS = {"CoRT (2021)": 140, "CoRT at TREC 2020": 43, "RepBERT (2020)": 102, "Passage Re-ranking with BERT (2019)": 17}
# Of each paper, what no shipped experiment computes, by reason.
NOT_COMPUTED = {
    ("CoRT (2021)", "one GPU at most is measured"): 4,
    ("RepBERT (2020)", "judged by the leaderboard alone"): 7,
    ("RepBERT (2020)", "another group's system"): 1,
    ("Passage Re-ranking with BERT (2019)", "judged by the leaderboard alone"): 4,
    ("Passage Re-ranking with BERT (2019)", "another group's system"): 3,
}


@pytest.fixture(scope="module")
def experiments():
    """All shipped experiments with defaults, by path."""
    return coverage.shipped()


@pytest.fixture(scope="module")
def covered(experiments):
    """Each published number, and the first experiment that computes it, if there is one."""
    measured = {name: coverage.Measured(one) for name, one in experiments.items()}
    return [
        (number, next((name for name, one in measured.items() if one.computes(number)), None))
        for number in coverage.published()
    ]


def test_as_many_published_numbers_are_computed_and_the_others_have_a_reason(covered):
    assert {paper: sum(number["paper"] == paper for number, _ in covered) for paper in PAPERS} == PAPERS
    assert Counter((number["paper"], number["note"]) for number, by in covered if by is None) == NOT_COMPUTED
    assert [number for number, by in covered if by and number["note"]] == []
    found = {(number["paper"], by) for number, by in covered if number["paper"] in PAPERS}
    elsewhere = {one for one in found if one[1] not in (None, MSMARCO)}
    assert elsewhere == {
        ("CoRT (2021)", "config/ablations/colbert.yaml"),
        ("CoRT (2021)", "config/ablations/table-6.yaml"),
        ("Passage Re-ranking with BERT (2019)", "config/trec-car.yaml"),
    }


@pytest.mark.parametrize(
    ("place", "value", "system"),
    [
        (("CoRT (2021)", "Table 1", "CoRT+BM25", "R@1000"), 0.949, "cort-e768+bm25"),
        (("CoRT (2021)", "Table 2", "CoRT", "MAP@1000"), 0.297, "cort-e768"),
        (("CoRT (2021)", "Table 4", "ANN, epsilon .4", "single (ms)"), 71, "cort-e128-onng-0.4"),
        (("CoRT (2021)", "Figure 2", "CoRT+BM25", "saturation"), 64, "cort-e768+bm25-cort-bert"),
        (("CoRT at TREC 2020", "Table 3", "CoRT+BM25→ELECTRA", "2020 nDCG@10"), 0.7566, "cort-e768+bm25-electra"),
        (("RepBERT (2020)", "Table 2", "50", "DeepCT"), 0.361, "deepct-bert-large"),
        (("RepBERT (2020)", "Table 3", "DeepCT", "+RepBERT"), 0.276, "deepct+repbert"),
        (("Passage Re-ranking with BERT (2019)", "Table 1", "BERT large", "TREC-CAR MAP"), 0.335, "bm25-bert-large"),
    ],
)
def test_published_numbers_are_those_of_the_papers(place, value, system):
    """Some read off the papers once more, by hand."""
    [found] = [one for one in coverage.published() if tuple([*one.values()][:4]) == place]
    assert (float(found["value"]), found["system"]) == (value, system)


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
    text = (ROOT / "docs" / "reproduction.md").read_text("utf-8")
    computed = Counter(number["paper"] for number, by in covered if by)
    for paper, number in PAPERS.items():
        assert f"| {paper} | {number} | {computed[paper]} |" in text
    assert f"| all | 302 | {sum(computed[paper] for paper in PAPERS)} |" in text


def test_names_of_latencies_are_those_that_are_written(experiments):
    experiment, rows = experiments[MSMARCO], []
    for name in experiment.config["latency"]["systems"]:
        batched = all(experiment.systems[part].batches for part in experiment.with_parts([name]))
        times = {key: {"mean": 1.0} for key in ("tokenize", "encode", "search", "sequential")}
        rows += [LatencyRow(name, "cpu", size, 3, times) for size in ((1, 32) if batched else (1,))]
    found = mean_latencies(experiment, SimpleNamespace(split="dev", rows=rows))
    written = {(split, system, measure) for system, split, measure, *_ in found}
    assert coverage.Measured(experiment).latencies == written

"""What plans say of GPUs and disk: known answers as formulas, and what docs/reproduction.md says."""

from itertools import permutations
from types import SimpleNamespace

import pytest

from cort.config import paths
from cort.config.load import load
from scripts import estimates as page
from tests.support.common import ROOT
from tests.support.configs import adjusted, built
from tests.support.jobs import job
from tests.support.workflow import RULES, process_as_it_was
from workflow import estimates
from workflow.estimates import PRODUCTS, SHARES, describe, estimate, hours, seconds_of, wall_clock
from workflow.facts import CHARACTERS_PER_TOKEN, KNOWN, Facts, Size, Texts
from workflow.groups import gpus_of_negatives

PASSAGES, QUERIES, CHARACTERS = 8_841_823, 6_980, 3_100_000_000 / 8_841_823 - 9


@pytest.fixture(scope="module")
def msmarco():
    return load(ROOT / "config" / "msmarco.yaml")


@pytest.fixture
def facts(msmarco, tmp_path, monkeypatch):
    """What is known where nothing is built and nothing of the hub is there."""
    from huggingface_hub import constants

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    return Facts(msmarco)


def operations(layers, weights, hidden, length):
    """Two per weight of a layer and token, and products of all pairs of its tokens, twice."""
    return length * layers * (2 * weights + 4 * length * hidden)


def test_weights_are_those_of_the_released_models():
    millions = {name: round(size.weights / 1e6) for name, size in KNOWN.items()}
    # Without biases, norms and poolers.
    published = {
        "google-bert/bert-base-uncased": 110,
        "google-bert/bert-large-uncased": 335,
        "albert/albert-base-v2": 12,
    }
    assert all(abs(millions[name] - number) <= 0.02 * number + 1 for name, number in published.items()), millions


def test_the_counts_are_those_of_the_catalogue(facts):
    assert facts.passages == Texts(PASSAGES, CHARACTERS)
    assert facts.queries("dev").number == QUERIES
    # A sample, of the judged ones.
    assert facts.queries("validation").number == 1_000
    # Unjudged topics stay, or are dropped.
    assert facts.queries("dl20").number == 200


def test_encoding_takes_the_time_that_was_measured(facts):
    """23,300 passages a second by BERT-base in bf16 (docs/performance.md), which MS MARCO's lengths must give, too."""
    one = job("encode", encoder="repbert", shard="1-of-8")
    seconds = seconds_of(one, facts)
    length = CHARACTERS / CHARACTERS_PER_TOKEN + 2
    count = PASSAGES / 8
    weights = 4 * 768**2 + 2 * 768 * 3072
    assert seconds == pytest.approx(count * operations(12, weights, 768, length) / (0.39 * 790e12))
    assert count / seconds == pytest.approx(23_300, rel=0.15)


def test_training_takes_three_passes_at_the_measured_share(facts):
    """1,190 triples a second; CoRT's query has a passage and a negative in each of ten epochs of judged queries."""
    seconds = seconds_of(job("train", encoder="cort-e768"), facts)
    queries = facts.queries("train")
    assert queries.number == 532_761
    assert 10 * queries.number / seconds == pytest.approx(1_190, rel=0.15)
    length = CHARACTERS / CHARACTERS_PER_TOKEN + 2
    asked = queries.characters / CHARACTERS_PER_TOKEN + 2
    weights = 4 * 768**2 + 2 * 768 * 3072
    triple = operations(12, weights, 768, asked) + 2 * operations(12, weights, 768, length)
    assert seconds == pytest.approx(3 * 10 * queries.number * triple / (SHARES["train"] * PRODUCTS["bf16"]))


def test_the_hours_that_cort_s_authors_give_are_such_shares(msmarco, facts):
    """33 hours to train and 7 to encode on an RTX 2080 Ti, 13.45 TFLOP/s in fp32: what the factor rests on."""
    for rule, given, fields in (("train", 33, {}), ("encode", 7, {"shard": "1-of-1"})):
        seconds = seconds_of(job(rule, encoder="cort-e128", **fields), facts)
        share = seconds * SHARES[rule] * PRODUCTS["bf16"] / (3600 * given * 13.45e12)
        assert 1 / estimates.FACTOR < share / SHARES[rule] < estimates.FACTOR + 0.2, (rule, share)


def test_released_triples_are_counted_by_lines_or_the_sample(facts):
    repbert, bert = (seconds_of(job(rule, **{kind: name}), facts) for rule, kind, name in (
        ("train", "encoder", "repbert"), ("train_reranker", "reranker", "bert-base")))  # fmt: skip
    # 26,991,900 triples once, at most as fast as CoRT's.
    assert 26_991_900 / repbert == pytest.approx(1_190, rel=0.2)
    # Two pairs of each of 6.4 million triples.
    length = facts.queries("train").characters / CHARACTERS_PER_TOKEN + CHARACTERS / CHARACTERS_PER_TOKEN + 3
    pair = operations(12, 4 * 768**2 + 2 * 768 * 3072, 768, length)
    assert bert == pytest.approx(3 * 2 * 6_400_000 * pair / (SHARES["train"] * PRODUCTS["bf16"]))


def test_search_takes_the_time_that_was_measured(msmarco, facts):
    one = job("retrieve", system="cort-e128", split="dev")
    assert seconds_of(one, facts) == pytest.approx(QUERIES / 256 * 0.094)


@pytest.mark.parametrize(("system", "numbers"), [("bm25", 0), ("cort-e768", 768), ("cort-e768+bm25", 768)])
def test_negatives_take_a_gpu_for_the_exact_searches_that_they_are_merged_from(msmarco, facts, system, numbers):
    one = job("negatives", model="electra", system=system, split="dev")
    assert seconds_of(one, facts) == pytest.approx(QUERIES / 256 * 0.094 * numbers / 128)
    assert gpus_of_negatives(msmarco, SimpleNamespace(system=system)) == bool(numbers)


def test_scores_are_those_of_all_candidates_at_most(msmarco, facts):
    output = msmarco.at(paths.SCORES, reranker="electra", split="dev")
    one = job("score", reranker="electra", split="dev", outputs=(output,))
    queries = facts.queries("dev")
    length = (queries.characters + CHARACTERS) / CHARACTERS_PER_TOKEN + 3
    pairs = 2 * 1_000 * QUERIES  # of BM25, and of CoRT with BM25
    pair = operations(24, 4 * 1024**2 + 2 * 1024 * 4096, 1024, length)
    # By default, scores are computed in single precision.
    precision = msmarco.rerankers["electra"].precision
    assert seconds_of(one, facts) == pytest.approx(pairs * pair / (SHARES["encode"] * PRODUCTS[precision]))


def test_what_is_not_known_is_named(facts):
    experiment = adjusted(built(), {"collection": {"irds": "car/v2.0"}})
    unknown = Facts(experiment)
    assert unknown.passages is None
    jobs = [job("encode", encoder="encoder", shard="1-of-1"), job("latency", split="test"), job("evaluate")]
    assert [seconds_of(one, unknown) for one in jobs] == [None, None, 0]
    found = estimate(experiment, jobs)
    assert (found.total, found.unknown) == (0, {"encode": 1, "latency": 1})
    words = "Too little is known yet to estimate what these jobs take of a GPU: encode 1, latency 1."
    assert describe(found) == f"\n{words}\n"
    # Kernels of words are not counted.
    assert seconds_of(job("train_reranker", reranker="knrm"), facts) is None


def test_rules_with_a_gpu_are_estimated_or_named():
    asking = {name for name, rule in RULES.items() if "gpu" in rule.resources}
    assert asking == estimates.ON_GPU.keys()


def makespan(jobs, seconds, gpus):
    """The shortest time in any order in which jobs could begin, each on the GPU that is free first."""
    best = float("inf")
    for order in permutations(range(len(jobs))):
        ends, free = {}, [0.0] * gpus
        for number in order:
            needed = [place for place, one in enumerate(jobs) if {*one.outputs} & {*jobs[number].inputs}]
            if not {*needed} <= ends.keys():
                break
            place = free.index(min(free))
            start = max([free[place] if seconds[number] else 0, *(ends[one] for one in needed)])
            ends[number] = start + seconds[number]
            free[place] = ends[number] if seconds[number] else free[place]
        else:
            best = min(best, max(ends.values()))
    return best


def test_the_wall_clock_is_that_of_the_longest_chain_or_of_the_work_divided():
    jobs = [
        job("train", outputs=("a",)),
        job("encode", inputs=("a",), outputs=("b",)),
        job("encode", inputs=("a",), outputs=("c",)),
        job("fuse", inputs=("b", "c"), outputs=("d",)),
        job("train", outputs=("e",)),
    ]
    seconds = [8.0, 3.0, 3.0, 0.0, 2.0]
    assert wall_clock(jobs, seconds, 1) == sum(seconds)
    assert wall_clock(jobs, seconds, 4) == 8 + 3
    for gpus in (1, 2, 3):
        # A list schedule is at most twice as long as the best (Graham, 1966).
        assert makespan(jobs, seconds, gpus) <= wall_clock(jobs, seconds, gpus) <= 2 * makespan(jobs, seconds, gpus)
    assert wall_clock([], [], 1) == 0


def test_hours_have_two_digits():
    assert [hours(3600 * amount) for amount in (0.004, 0.094, 0.25, 9.94, 1234)] == [
        "0.00",
        "0.09",
        "0.2",
        "9.9",
        "1,234",
    ]


def test_a_model_of_a_config_is_of_its_size():
    architecture = {"hidden_size": 8, "num_hidden_layers": 2, "intermediate_size": 16, "num_attention_heads": 2}
    experiment = adjusted(built(), {"base_models": {"own": {"architecture": architecture, "vocabulary_size": 100}}})
    assert Facts(experiment).size("own") == Size(8, 2, 16, 100, 8)


def rows_of_the_page():
    table = (ROOT / page.PAGE).read_text("utf-8").split(page.BEGIN)[1].partition(page.END)[0]
    return [line.split() for line in table.splitlines()]


SOME = ("config/tables/cort/2.yaml",)


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [pytest.param(name, marks=() if name in SOME else pytest.mark.exhaustive) for name in sorted(
        [str(path.relative_to(ROOT)) for path in (ROOT / "config/tables").glob("*/*.yaml")] + [*page.OWN])],
)  # fmt: skip
def test_the_page_has_the_estimates(config, tmp_path, monkeypatch):
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.chdir(ROOT)
    with process_as_it_was():
        assert page.row_of(config) in rows_of_the_page()


def test_the_page_has_a_row_for_each_table(monkeypatch):
    monkeypatch.chdir(ROOT)
    names = [row[0] for row in rows_of_the_page()][1:]
    assert names == [
        name.removeprefix("config/").removeprefix("tables/").removesuffix(".yaml") for name in page.configs()
    ]

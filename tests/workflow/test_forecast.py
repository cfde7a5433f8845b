"""Forecasts: measurements before estimates, known counts, and what must follow when one count changes."""

import gzip
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from cort.formats.tokens import Tokens
from tests.support.jobs import job
from tests.support.planning import REFERENCE, write_benchmark
from tests.tiny.generate import write_experiment
from workflow.experiment.checks import load
from workflow.planning import forecast
from workflow.planning.costs import (
    ESTIMATED,
    RECORDED,
    SCALED,
    Cost,
    Prediction,
    estimate,
    predict,
    read_benchmark,
    simulate,
    table,
)
from workflow.planning.dryrun import DryRun
from workflow.planning.facts import Texts, gather, model_from, read_table, read_texts
from workflow.planning.flops import examples, work
from workflow.planning.speed import measure

RULES = Path(__file__).parents[2] / "workflow" / "rules"
BERT = model_from({})
EXPANDER = {"base_model": "small", "passage_length": 512, "query_length": 64}
EXPANDER |= {"training": {"epochs": 2, "batch_size": 256, "gradient_accumulation": 1, "validate_every": 0.1}}
EXPANDER["training"] |= {"tokens_at_once": 8192}
TRAIN = job("train", outputs=["model"], encoder="encoder", threads=8)


@pytest.fixture
def config(tmp_path):
    """Config of an experiment with a split of 12 queries, in a folder with its raw files."""
    return load(write_experiment(tmp_path / "tiny"))


@pytest.fixture
def facts(config, tmp_path):
    return gather(config, tmp_path)


@pytest.fixture
def large(facts):
    """The same experiment with many texts, and a large model."""
    texts = Texts(100_000, 300.0, 8)
    return replace(facts, passages=texts, queries=dict.fromkeys(facts.queries, texts), models={"small": BERT})


# Known counts.


def test_costs_are_those_of_rules():
    name = re.compile(r"^(?:rule|use rule \w+ as) (\w+)", re.MULTILINE)
    rules = {rule for path in RULES.glob("*.smk") for rule in name.findall(path.read_text("utf-8"))}
    assert set(table()) <= (rules - {"all"}) | {"others"}


@pytest.mark.parametrize(
    ("settings", "millions"),
    [
        ({}, 109.5),
        ({"vocab_size": 30_000, "embedding_size": 128, "model_type": "albert"}, 11.7),
        ({"dim": 768, "n_layers": 6, "hidden_dim": 3072}, 66.4),
    ],
)
def test_weights_of_known_models_are_those_they_have(settings, millions):
    assert model_from(settings).weights == pytest.approx(millions * 1e6, rel=0.08)


def test_a_pass_of_bert_takes_two_operations_per_weight_and_token():
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert BERT.flops(0) == 2 * layers
    assert BERT.flops(512) == 2 * layers + 12 * 4 * 512 * 768


def test_texts_are_cut_where_the_model_cuts_them():
    assert Texts(1, 49.0, 1).tokens(512) == 12
    assert Texts(1, 49.0, 1).tokens(8) == 8


def test_the_size_of_a_run_is_that_of_the_file(config, facts, tmp_path):
    from cort.formats.records import Ranking
    from cort.formats.runs import write_run

    doc_ids = [f"d{number:07d}" for number in range(100)]
    scores = [20 - number / 7 for number in range(100)]
    write_run(tmp_path / "run.trec", [Ranking(f"q{number:07d}", doc_ids, scores) for number in range(1_000)], "bm25")
    texts = Texts(1_000, 50.0, 8)
    facts = replace(facts, passages=texts, queries={"test": texts})
    one = job("bm25", split="test", system="bm25")
    found = estimate(one, 1, config | {"depth": 100}, facts, REFERENCE)
    assert found.disk * 1e6 == pytest.approx((tmp_path / "run.trec").stat().st_size, rel=0.15)


def test_stored_vectors_take_what_their_type_takes(config, large):
    config["encoders"]["encoder"].update(dimension=128, storage="fp16")
    one, four = (
        work(job("encode", encoder="encoder", scatteritem=item), config, large) for item in ("1-of-1", "3-of-4")
    )
    assert one.disk == 100_000 * (128 * 2 + 8 + 8)
    assert (four.disk, four.flops) == (one.disk / 4, one.flops / 4)


def test_predicting_grows_with_queries_and_is_divided_by_shards(config, large):
    config["expanders"]["t5"] = {**EXPANDER, "queries": 10}

    def expanding(item="1-of-1", **changes):
        config["expanders"]["t5"].update(changes)
        return work(job("expand", expander="t5", scatteritem=item), config, large)

    ten, quarter = expanding(), expanding("2-of-4")
    assert (quarter.flops, quarter.disk) == (ten.flops / 4, ten.disk / 4)
    twenty, forty = expanding(queries=20), expanding(queries=40)
    assert forty.flops - twenty.flops == pytest.approx(2 * (twenty.flops - ten.flops))
    # As many as are searched for, of which some are kept.
    assert expanding(beams=40, queries=10).flops == forty.flops
    trained = work(job("train_expander", expander="t5"), config, large)
    assert trained.flops > 0
    assert trained.checkpoints > 3 * 16 * BERT.weights
    # Every judged pair is an example, and more updates are checked more often.
    judged = {split: 7 * large.queries[split].count for split in ("train", "validation")}
    more = work(job("train_expander", expander="t5"), config, replace(large, judgements=judged))
    assert more.flops >= 7 * trained.flops


def test_weighing_is_divided_by_shards(config, large):
    config["weighers"] = {"deepct": {"base_model": "small", "passage_length": 128, "precision": "fp32"}}
    whole, third = (
        work(job("weigh", weigher="deepct", scatteritem=item), config, large) for item in ("1-of-1", "2-of-3")
    )
    assert (third.flops, third.disk) == (pytest.approx(whole.flops / 3), pytest.approx(whole.disk / 3))


# What follows from a change.


def seconds(config, facts, one=TRAIN, machine=REFERENCE):
    """Time of the job beside what an empty one takes."""
    return estimate(one, 1, config, facts, machine).seconds - table()[one.rule]["seconds"]


@pytest.mark.parametrize(
    ("taken", "count"), [({}, 50), ({"limit": 30}, 30), ({"limit": 40, "sample": 10}, 10), ({"sample": 90}, 50)]
)
def test_released_triples_are_counted(config, tmp_path, taken, count):
    for section, source, rows in (("encoders", "triples", 1), ("rerankers", "pairs", 2)):
        (name,) = config[section]
        found = {"file": "tiny/data/triples.train.tsv", "limit": 0, "sample": 0} | taken
        config[section][name][source] |= found
        made = examples(section, name, "train", config, gather(config, tmp_path))
        assert made == pytest.approx(count * rows * config[section][name]["training"]["epochs"])
    config["encoders"]["encoder"]["triples"]["file"] = "download:msmarco/qidpidtriples.train.full.2.tsv.gz"
    epochs = config["encoders"]["encoder"]["training"]["epochs"]
    most = min([397_768_673, *(number for number in taken.values() if number)])
    assert examples("encoders", "encoder", "train", config, gather(config, tmp_path)) == most * epochs


def test_training_takes_as_much_longer_as_it_has_more_examples(config, large):
    training = config["encoders"]["encoder"]["training"]
    training.update(epochs=1, validate_every=10**9)
    once = work(TRAIN, config, replace(large, queries={"train": Texts(100_000, 300.0, 8)})).flops
    training["epochs"] = 2
    assert work(TRAIN, config, replace(large, queries={"train": Texts(100_000, 300.0, 8)})).flops == 2 * once


def reranking(config, facts, queries, one="train_reranker", **changes):
    """Work of a re-ranker of groups of 8, one negative of them from a ranking."""
    settings = config["rerankers"]["cross"]
    settings |= {"loss": "softmax", "query_length": 32, "max_length": 96, "dimension": 64, "depth": 32, **changes}
    settings["pairs"] |= {"negatives": 7, "random": changes.get("random", 6)}
    settings["training"] |= {"epochs": 1, "batch_size": 64, "gradient_accumulation": 1, "validate_every": 10**9}
    texts = facts.queries["train"]
    splits = {"train": replace(texts, count=queries), "validation": replace(texts, count=8), "test": texts}
    fields = {} if one == "train_reranker" else {"split": "test"}
    return work(job(one, outputs=["x"], reranker="cross", **fields), config, replace(facts, queries=splits))


@pytest.fixture
def docstrings(facts):
    """The quickstart's texts and model."""
    architecture = {"hidden_size": 128, "num_hidden_layers": 1, "intermediate_size": 256, "vocab_size": 16_000}
    model = model_from(architecture | {"max_position_embeddings": 160})
    texts = dict.fromkeys(facts.queries, Texts(1_000, 69.0, 50))
    return replace(facts, passages=Texts(36_587, 848.0, 50), queries=texts, models={"small": model})


def test_late_interaction_takes_as_much_less_than_a_cross_encoder_as_was_measured(config, docstrings):
    late, cross = (
        reranking(config, docstrings, 896, kind=kind, max_length=length)
        for kind, length in (("late_interaction", 64), ("cross_encoder", 96))
    )
    # Processor time of 10 updates of the quickstart's late re-ranker, and of a cross-encoder in its place.
    assert cross.flops / late.flops == pytest.approx(8.64 / 2.46, rel=0.2)
    assert late.memory < cross.memory


def test_late_interaction_encodes_the_positives_of_other_queries_once(config, docstrings):
    kind = {"kind": "late_interaction", "max_length": 64}
    none, most = (reranking(config, docstrings, 896, **kind, random=number).flops for number in (0, 6))
    assert 2.5 < none / most < 4
    cross = [reranking(config, docstrings, 896, kind="cross_encoder", random=number).flops for number in (0, 6)]
    assert cross[0] == cross[1]


def test_late_interaction_scores_with_the_vectors_of_many_passages_in_memory(config, docstrings):
    kind = {"kind": "late_interaction", "max_length": 64}
    less, more = (reranking(config, docstrings, 8, "score", **kind, dimension=size) for size in (64, 128))
    # At most 8,192 passages at once.
    assert 6_000 * 64 * 64 * 4 < more.memory - less.memory < 8_192 * 64 * 64 * 4
    few, many = (reranking(config, docstrings, 8, "score", **kind, depth=depth).flops for depth in (32, 64))
    assert many == pytest.approx(2 * few, rel=0.1)


def test_late_interaction_retrieves_with_all_tokens_of_all_passages(config, docstrings):
    kind = {"kind": "late_interaction", "max_length": 64, "base_model": "small"}
    config["systems"]["late"] = {"retrieve": "cross"}
    whole = reranking(config, docstrings, 8, "encode_tokens", **kind, dimension=128)
    length = docstrings.passages.tokens(64)
    assert whole.disk == pytest.approx(docstrings.passages.count * (length * 128 * 2 + 50 + 8))
    part = work(job("encode_tokens", reranker="cross", scatteritem="2-of-4"), config, docstrings)
    assert (part.disk, part.flops) == (whole.disk / 4, whole.flops / 4)
    search = job("retrieve_tokens", system="late", split="test")
    less = work(search, config, docstrings).flops
    # Of an index, each token of a query has so many candidates at most.
    config["systems"]["through"] = {"retrieve": "cross", "ivfpq": {"candidates": 10}}
    assert work(job("retrieve_ivfpq", system="through", split="test"), config, docstrings).flops < less / 10
    config["systems"]["through"]["ivfpq"]["candidates"] = 10**6
    assert work(job("retrieve_ivfpq", system="through", split="test"), config, docstrings).flops == less
    config["rerankers"]["cross"]["dimension"] = 64
    assert less / work(search, config, docstrings).flops == pytest.approx(2, rel=0.05)


def test_kernel_pooling_has_the_word_vectors_alone(config, docstrings):
    cross, knrm, conv = (
        reranking(config, docstrings, 896, kind=kind) for kind in ("cross_encoder", "knrm", "conv_knrm")
    )
    # Best and last, of four bytes a weight.
    assert knrm.disk == conv.disk == 2 * 4 * 16_000 * 128 < cross.disk
    # docs/training.md has it as measured.
    assert conv.flops / knrm.flops == pytest.approx(7, rel=0.5)
    new = reranking(config, docstrings, 896, kind="knrm", word_vectors="new", dimension=64)
    assert (new.disk, new.width) == (knrm.disk / 2, 64)


def test_a_batch_of_groups_has_as_many_pairs_more(config, docstrings):
    groups, pairs = (
        reranking(config, docstrings, 896, kind="cross_encoder", loss=loss) for loss in ("softmax", "pointwise")
    )
    assert groups.flops == pytest.approx(pairs.flops, rel=0.01)
    assert groups.memory > pairs.memory


def test_cores_and_gpus_help_as_far_as_there_are_any(config, large):
    alone, some, many = (seconds(config, large, replace(TRAIN, threads=threads)) for threads in (1, 4, 64))
    assert (alone / some, alone / many) == (pytest.approx(4), pytest.approx(8))
    machine = replace(REFERENCE, gpus=4)
    one, four = (seconds(config, large, replace(TRAIN, resources={"gpu": gpus}), machine) for gpus in (1, 4))
    assert one / four == pytest.approx(4)


def test_a_slower_machine_and_a_larger_collection_take_longer(config, large):
    assert seconds(config, large, machine=replace(REFERENCE, flops={"fp32": 3.5e10})) == 2 * seconds(config, large)
    one = job("retrieve", split="test", system="cort")
    less, more = (estimate(one, read, config, large, REFERENCE).seconds for read in (1_000, 2_000))
    assert more > 1.9 * less


def test_only_a_long_training_leaves_checkpoints_meanwhile(config, facts, large):
    assert estimate(TRAIN, 1, config, facts, REFERENCE).temporary == 0
    # Three of them, each with weights, best weights and two moments in single precision.
    assert estimate(TRAIN, 1, config, large, REFERENCE).temporary == pytest.approx(3 * 16 * BERT.weights / 1e6)


# From measurements.


def test_the_explorer_has_one_run_in_memory_at_a_time(config, large):
    """As measured: 901 MB with six runs of 244 MB each, 911 MB with two."""
    texts = replace(large, passages=Texts(552_614, 56.0, 6), queries={"test": Texts(6_980, 6.0, 4)})
    one = job("explorer", split="test")
    two, six = (estimate(one, runs * 244 + 140, config | {"depth": 1_000}, texts, REFERENCE) for runs in (2, 6))
    assert two.memory == six.memory == pytest.approx(905, rel=0.1)
    assert (two.seconds, six.seconds) == (pytest.approx(12.7, rel=0.3), pytest.approx(23.0, rel=0.3))


def planned(*names, folder, config, facts):
    """Predict evaluations of systems; each reads a run of as many MB as its name says."""
    jobs = []
    for name in names:
        (folder / f"{name}.trec").write_bytes(bytes(int(name) * 10**6))
        benchmark = f"benchmarks/tiny/evaluate/test.{name}.tsv"
        jobs.append(
            job(inputs=[f"{name}.trec"], outputs=[f"{name}.json"], benchmark=benchmark, split="test", system=name)
        )
    return predict(DryRun(tuple(jobs)), config, facts, REFERENCE, folder)


def test_a_job_costs_what_it_did_and_others_of_its_rule_in_proportion(config, facts, tmp_path):
    write_benchmark(tmp_path / "benchmarks/tiny/evaluate/test.10.tsv", 12.5, 345)
    own, alike, larger = planned("10", "10", "90", folder=tmp_path, config=config, facts=facts)
    assert (own.cost[:2], own.source) == ((12.5, 345), RECORDED)
    assert alike == own
    # An empty one takes 0.8 s, a MB 5 ms.
    expected = 12.5 * (0.8 + 90 * 0.005) / (0.8 + 10 * 0.005)
    assert (larger.cost.seconds, larger.source) == (pytest.approx(expected, rel=0.01), SCALED)
    assert larger.cost.memory == pytest.approx(345 * (90 + 3 * 90) / (90 + 3 * 10), rel=0.01)


def test_jobs_that_are_done_tell_of_those_to_come(config, facts, tmp_path):
    write_benchmark(tmp_path / "a.tsv", 1_000, "-")
    done = replace(TRAIN, benchmark="a.tsv", planned=False)
    config["encoders"]["other"] = json.loads(json.dumps(config["encoders"]["encoder"]))
    config["encoders"]["other"]["training"]["epochs"] *= 1_000
    other = job("train", outputs=["other"], encoder="other", threads=8)
    (found,) = predict(DryRun((other,), (done,)), config, facts, REFERENCE, tmp_path)
    assert found.source == SCALED
    assert found.cost.seconds > 1_500
    # Too short for its memory to be measured.
    assert found.cost.memory > 500


def test_a_job_of_a_rule_that_never_ran_is_estimated_from_what_jobs_before_it_write(config, facts, tmp_path):
    (tmp_path / "raw").write_bytes(bytes(100 * 10**6))
    first = job("collection", inputs=["raw"], outputs=["table"])
    second = job("bm25_index", inputs=["table"], outputs=["index"])
    found = predict(DryRun((first, second)), config, facts, REFERENCE, tmp_path)
    assert {each.source for each in found} == {ESTIMATED}
    assert found[1].cost.disk == pytest.approx(100 * 0.28 * 0.9)


def test_truncation_is_told_where_token_caches_are(config, caches, lm, tmp_path):
    assert forecast.truncations(config, tmp_path) == ""
    sources = {"base_models/small/tokenizer.json": f"{lm}/tokenizer.json"}
    for path, source in (sources | {"tokens/small/passages.arrow": caches["passages"]}).items():
        target = tmp_path / "results" / config["dataset"] / path
        target.parent.mkdir(parents=True)
        shutil.copy(source, target)
    lengths = Tokens(caches["passages"]).lengths
    expected = f"encoder: passages: {len(lengths)} texts, {lengths.mean():.1f} tokens on average, "
    assert expected in forecast.truncations(config, tmp_path)


@pytest.mark.parametrize("text", ["", "s\tmax_rss\n", "s\tmax_rss\nNA\tNA\n", "\x00\xff"])
def test_a_benchmark_that_says_nothing_is_passed_over(tmp_path, text):
    (tmp_path / "encoder.tsv").write_text(text, "utf-8")
    assert read_benchmark(tmp_path / "encoder.tsv") is None
    assert read_benchmark(tmp_path) is None


# Side by side.


def timed(seconds, memory=100, **fields):
    return Prediction(job(**fields), Cost(seconds, memory), ESTIMATED)


def test_jobs_wait_for_their_input_and_for_cores():
    jobs = [
        timed(10, outputs=["a"]),
        timed(20, inputs=["a"], outputs=["b"]),
        timed(5, inputs=["a"], outputs=["c"]),
        timed(1, inputs=["b", "c"]),
    ]
    assert simulate(jobs, 1, 0) == (36, 100)
    assert simulate(jobs, 2, 0) == (31, 200)
    # More threads than there are cores.
    assert simulate([timed(10, threads=8), timed(10)], 2, 0) == (20, 100)


def test_jobs_share_gpus():
    jobs = [timed(10, gpus=1) for _ in range(4)]
    assert simulate(jobs, 8, 2) == (20, 200)
    # On a machine without any they run on its cores.
    assert simulate(jobs, 8, 0) == (10, 400)
    assert simulate(jobs, math.inf, math.inf) == (10, 400)


# The texts.


@pytest.mark.parametrize("name", ["passages.tsv", "passages.tsv.gz", "passages.jsonl", "passages.jsonl.gz"])
def test_a_file_of_many_megabytes_is_counted_from_its_beginning(tmp_path, name):
    texts = [" ".join(["word" * 4] * (20 + number % 20)) for number in range(20_000)]
    if "jsonl" in name:
        lines = [json.dumps({"_id": f"d{number:05d}", "title": "", "text": text}) for number, text in enumerate(texts)]
    else:
        lines = [f"d{number:05d}\t{text}" for number, text in enumerate(texts)]
    data = ("\n".join(lines) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_texts(tmp_path / name)
    assert found.count == pytest.approx(20_000, rel=0.05)
    assert found.mean == pytest.approx(sum(map(len, texts)) / len(texts), rel=0.1)


def test_a_table_is_described_by_all_of_its_rows(tmp_path):
    from cort.formats import tables

    texts = ["a" * 10 + str(number) for number in range(5_000)] + ["b" * 90 + str(number) for number in range(5_000)]
    ids = [f"d{number:04d}" for number in range(len(texts))]
    tables.write_table(tmp_path / "passages.parquet", pa.table({"doc_id": ids, "text": texts}, schema=tables.PASSAGES))
    found = read_table(tmp_path / "passages.parquet")
    assert found.count == 10_000
    assert found.mean == pytest.approx(54, rel=0.2)
    assert 3 < found.id_characters < 12


@pytest.mark.parametrize("content", [b"", b"PAR1 is no table"])
def test_what_is_no_table_is_passed_over(tmp_path, content):
    (tmp_path / "passages.parquet").write_bytes(content)
    assert read_table(tmp_path / "passages.parquet") is None


def test_an_experiment_is_described_by_its_raw_files(facts):
    assert facts.passages.count == 150
    assert {split: texts.count for split, texts in facts.queries.items()} == {"train": 50, "validation": 10, "test": 12}
    assert facts.models["small"].hidden == 32


# The machine.


def test_the_probe_measures_this_machine(monkeypatch):
    # GPUs that torch cannot use do not count.
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = measure(["bf16"], 2, 3)
    assert found.flops["fp32"] > 1e8
    assert found.flops["bf16"] > 1e6
    assert found.gpus == 0

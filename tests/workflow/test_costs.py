"""Predictions from counts: known answers, and what must follow when one count changes."""

import gzip
import json
import math
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.end_to_end.test_workflow import RULES
from workflow.planning import predictions
from workflow.planning.costs import Cost, Machine, at_rest, cost
from workflow.planning.dryrun import Job
from workflow.planning.facts import Texts, gather, model_from, read_judged, read_table, read_texts
from workflow.planning.predictions import ESTIMATED, RECORDED, SCALED, Prediction, predict, scale, simulate
from workflow.planning.probe import measure
from workflow.planning.work import WORK, Quantities, constants

REFERENCE = Machine(cores=8, flops={"fp32": 7.0e10}, loop=0.10)
# 100 characters and 4.9 of them a token.
TEXTS = Texts(1_000, 8, (98.0,))
BERT = model_from({})
TRAINING = Quantities(
    passages=TEXTS, queries=TEXTS, model=BERT, examples=60_000, batch=6, gradient_accumulation=100, query_length=64,
    passage_length=512,
)  # fmt: skip


# What a job costs.


def test_every_rule_has_a_cost():
    assert set(WORK) == set(constants()["rules"]) == set(RULES)


def test_weights_of_bert_base_are_those_it_has():
    # 109,482,240 with biases, normalisation and pooler.
    assert BERT.weights == pytest.approx(109.5e6, rel=0.01)


def test_layers_of_albert_share_their_weights():
    sizes = {"vocab_size": 30_000, "embedding_size": 128, "model_type": "albert"}
    # albert-base-v2 has 11.7 million.
    assert model_from(sizes).weights == pytest.approx(11.7e6, rel=0.08)


def test_settings_of_distilbert_have_names_of_their_own():
    assert model_from({"dim": 768, "n_layers": 6, "hidden_dim": 3072}).weights == pytest.approx(66.4e6, rel=0.01)


def test_texts_are_cut_where_the_model_cuts_them():
    texts = Texts(2, 1, (49.0, 490.0), characters_per_token=4.9)
    assert texts.tokens() == pytest.approx((12 + 102) / 2)
    assert texts.tokens(32) == pytest.approx((12 + 32) / 2)


def test_a_pass_of_bert_takes_two_operations_per_weight_and_token():
    layers = 12 * (4 * 768**2 + 2 * 768 * 3072)
    assert BERT.flops(0) == 2 * layers
    assert BERT.flops(512) == 2 * layers + 12 * 4 * 512 * 768


def test_exact_search_grows_with_pairs_of_queries_and_passages():
    def seconds(queries, passages):
        work = Quantities(
            queries=replace(TEXTS, count=queries), passages=replace(TEXTS, count=passages), depth=1, dimension=128
        )
        return cost("retrieve", work, REFERENCE, 1).seconds - at_rest("retrieve", REFERENCE).seconds

    assert seconds(2_000, 1e6) == pytest.approx(2 * seconds(1_000, 1e6))
    assert seconds(1_000, 8e6) == pytest.approx(8 * seconds(1_000, 1e6), rel=0.01)


def test_training_takes_as_much_longer_as_it_has_more_examples():
    base = at_rest("train", REFERENCE).seconds
    once, twice = (
        cost("train", replace(TRAINING, examples=count), REFERENCE, 8).seconds - base for count in (60_000, 120_000)
    )
    assert twice == pytest.approx(2 * once, rel=1e-6)


def test_cores_help_as_far_as_there_are_any():
    alone, some, many = (cost("train", TRAINING, REFERENCE, threads).seconds for threads in (1, 4, 64))
    base = at_rest("train", REFERENCE).seconds
    assert (alone - base) / (some - base) == pytest.approx(4)
    assert (alone - base) / (many - base) == pytest.approx(8)


def test_a_slower_machine_takes_longer():
    slow = replace(REFERENCE, flops={"fp32": 3.5e10}, loop=0.2)
    for rule in WORK:
        assert cost(rule, TRAINING, slow, 4).seconds > 1.5 * cost(rule, TRAINING, REFERENCE, 4).seconds


def test_gpus_share_the_passes_of_a_training():
    machine = replace(REFERENCE, flops={"fp32": 2.0e13}, gpus=4)
    one, four = (cost("train", TRAINING, machine, 8, gpus).seconds for gpus in (1, 4))
    base = at_rest("train", machine).seconds
    assert (one - base) / (four - base) == pytest.approx(4)


def test_only_a_long_training_leaves_checkpoints_meanwhile():
    short, long = (cost("train", replace(TRAINING, examples=count), REFERENCE, 8) for count in (600, 6_000_000))
    assert short.temporary == 0
    # Three of them, each with weights, best weights and two moments in single precision.
    assert long.temporary == pytest.approx(3 * 16 * BERT.weights / 1e6)


def test_a_short_collection_gives_no_more_results_than_it_has_passages():
    work = Quantities(queries=TEXTS, passages=replace(TEXTS, count=150), depth=1_000)
    assert work.results == 1_000 * 150


def test_the_size_of_a_run_is_that_of_the_file(tmp_path):
    from cort.formats.records import Ranking
    from cort.formats.runs import write_run

    doc_ids = [f"d{number:07d}" for number in range(100)]
    scores = np.linspace(20, 10, 100)
    write_run(tmp_path / "run.trec", [Ranking(f"q{number:07d}", doc_ids, scores) for number in range(1_000)], "bm25")
    work = Quantities(queries=TEXTS, passages=TEXTS, depth=100, tag="bm25")
    assert work.run_bytes == pytest.approx((tmp_path / "run.trec").stat().st_size, rel=0.15)


def test_stored_vectors_take_what_their_type_takes():
    work = Quantities(texts=TEXTS, model=BERT, passage_length=64, dimension=128, value_bytes=2)
    assert cost("encode", work, REFERENCE, 1).disk == pytest.approx(1_000 * (128 * 2 + 16) / 1e6)
    assert cost("encode", replace(work, shards=4), REFERENCE, 1).disk == pytest.approx(250 * (128 * 2 + 16) / 1e6)


# From measurements.


def test_the_same_work_costs_what_was_measured():
    assert scale(measured=37, then=10, now=10, base=4) == 37


def test_a_measurement_of_much_work_tells_how_wrong_the_model_is():
    assert scale(measured=200, then=100, now=1_000, base=0) == pytest.approx(2_000)


def test_a_measurement_of_next_to_no_work_tells_nothing_of_more_work():
    assert scale(measured=8, then=4, now=104, base=4) == pytest.approx(8 + 100)


@pytest.mark.parametrize("now", [0.1, 1, 9, 10, 11, 1e6])
@pytest.mark.parametrize("measured", [0.01, 1, 10, 1e4])
def test_a_scaled_cost_is_positive_and_never_less_for_more_work(measured, now):
    assert 0 < scale(measured, 10, now, 3) <= scale(measured, 10, 1.5 * now, 3)


def job(rule="evaluate", outputs=(), inputs=(), threads=1, gpus=0, benchmark="", **wildcards):
    return Job(0, rule, wildcards, tuple(inputs), tuple(outputs), threads, {"gpu": gpus}, "", benchmark, "python")


@pytest.fixture
def experiment(tmp_path):
    """Config with a split of 12 queries, in a folder with its raw files."""
    from tests.tiny.generate import write_experiment
    from workflow.experiment.checks import load

    return load(write_experiment(tmp_path / "tiny"))


def write_benchmark(path, seconds, memory):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"s\th:m:s\tmax_rss\tcpu_time\n{seconds}\t0:00:01\t{memory}\t1\n", "utf-8")


def test_a_job_that_ran_before_costs_what_it_did(experiment, tmp_path):
    write_benchmark(tmp_path / "benchmarks/tiny/evaluate/test.bm25.tsv", 12.5, 345)
    one = job(dataset="tiny", split="test", system="bm25", benchmark="benchmarks/tiny/evaluate/test.bm25.tsv")
    other = job(dataset="tiny", split="test", system="cort", benchmark="benchmarks/tiny/evaluate/test.cort.tsv")
    own, alike = predict([one, other], experiment, gather(experiment, tmp_path), REFERENCE, tmp_path)
    assert (own.cost.seconds, own.cost.memory, own.source) == (12.5, 345, RECORDED)
    assert (alike.cost.seconds, alike.source) == (pytest.approx(12.5), SCALED)


def test_a_job_of_a_rule_that_never_ran_is_estimated(experiment, tmp_path):
    found = predict([job(dataset="tiny", split="test")], experiment, gather(experiment, tmp_path), REFERENCE, tmp_path)
    assert [each.source for each in found] == [ESTIMATED]


@pytest.mark.parametrize("text", ["", "s\tmax_rss\n", "s\tmax_rss\nNA\tNA\n", "\x00\xff"])
def test_a_benchmark_that_says_nothing_is_passed_over(tmp_path, text):
    path = tmp_path / "benchmarks/tiny/train/encoder.tsv"
    path.parent.mkdir(parents=True)
    path.write_text(text, "utf-8")
    assert predictions.read_records(tmp_path) == {}


def test_a_job_too_short_for_its_memory_has_only_a_time(experiment, tmp_path):
    write_benchmark(tmp_path / "benchmarks/tiny/evaluate/test.bm25.tsv", 0.2, "-")
    one = job(dataset="tiny", split="test", system="bm25", benchmark="benchmarks/tiny/evaluate/test.bm25.tsv")
    found = predict([one], experiment, gather(experiment, tmp_path), REFERENCE, tmp_path)[0]
    assert found.cost.seconds == 0.2
    assert found.cost.memory > 0


def test_a_training_with_other_settings_is_scaled_by_what_its_log_says(experiment, tmp_path):
    name = "benchmarks/tiny/train/encoder.tsv"
    write_benchmark(tmp_path / name, 1_000, 500)
    log = tmp_path / "logs/tiny/train/encoder.log"
    log.parent.mkdir(parents=True)
    log.write_text("12:00:00 INFO cort 0.1.0: python -m cort.train --batch-size 8 --validate-every 5\n", "utf-8")
    one = job("train", dataset="tiny", encoder="encoder", benchmark=name)
    same = predict([one], experiment, gather(experiment, tmp_path), REFERENCE, tmp_path)[0]
    experiment["encoders"]["encoder"]["training"].update(batch_size=800)
    other = predict([one], experiment, gather(experiment, tmp_path), REFERENCE, tmp_path)[0]
    assert (same.cost.seconds, same.source) == (1_000, RECORDED)
    # The activations of more examples at a time.
    assert other.source == SCALED
    assert other.cost.memory > 500


# Side by side.


def timed(seconds, memory=100, **fields):
    return Prediction(job(**fields), Cost(seconds, memory, 0), ESTIMATED)


def test_jobs_wait_for_their_input_and_for_cores():
    jobs = [
        timed(10, outputs=["a"]),
        timed(20, inputs=["a"], outputs=["b"]),
        timed(5, inputs=["a"], outputs=["c"]),
        timed(1, inputs=["b", "c"]),
    ]
    assert simulate(jobs, 1, 0) == (36, 100)
    assert simulate(jobs, 2, 0) == (31, 200)


def test_a_job_with_more_threads_than_cores_runs_alone():
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
    generator = random.Random(3)  # noqa: S311
    words = ["".join(generator.choices("abcdefghijklmnopqrstuvwxyz", k=9)) for _ in range(5_000)]
    texts = [" ".join(generator.choices(words, k=20 + number % 20)) for number in range(20_000)]
    if "jsonl" in name:
        lines = [json.dumps({"_id": f"d{number:05d}", "title": "", "text": text}) for number, text in enumerate(texts)]
    else:
        lines = [f"d{number:05d}\t{text}" for number, text in enumerate(texts)]
    data = ("\n".join(lines) + "\n").encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    found = read_texts(tmp_path / name)
    assert found.count == pytest.approx(20_000, rel=0.02)
    assert found.mean == pytest.approx(np.mean([len(text) for text in texts]), rel=0.02)
    assert found.id_characters == 6


def test_queries_are_counted_once_in_judgements(tmp_path):
    path = tmp_path / "qrels.tsv"
    path.write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q{n // 3}\td{n}\t1\n" for n in range(300)), "utf-8")
    assert read_judged(path) == 100


def test_a_table_is_described_by_all_of_its_rows(tmp_path):
    from cort.formats import tables

    texts = ["a" * 10] * 5_000 + ["b" * 30] * 5_000
    ids = [f"d{number:04d}" for number in range(len(texts))]
    tables.write_table(tmp_path / "passages.parquet", pa.table({"doc_id": ids, "text": texts}, schema=tables.PASSAGES))
    found = read_table(tmp_path / "passages.parquet")
    assert (found.count, found.id_characters) == (10_000, 5)


@pytest.mark.parametrize("content", [b"", b"PAR1 is no table"])
def test_what_is_no_table_is_passed_over(tmp_path, content):
    (tmp_path / "passages.parquet").write_bytes(content)
    assert read_table(tmp_path / "passages.parquet") is None


def test_an_experiment_is_described_by_its_raw_files(experiment, tmp_path):
    facts = gather(experiment, tmp_path)
    assert facts.passages.count == 150
    assert {split: texts.count for split, texts in facts.queries.items()} == {"train": 50, "validation": 10, "test": 12}
    assert facts.models["small"].hidden == 32


# The machine.


def test_the_probe_measures_this_machine():
    found = measure(["bf16"], 2, 0)
    assert found.flops["fp32"] > 1e8
    assert found.flops["bf16"] > 1e6
    assert 0.001 < found.loop < 10


def test_gpus_that_torch_cannot_use_do_not_count(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert measure(["fp32"], 2, 3).gpus == 0

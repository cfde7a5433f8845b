"""Other ways to train an encoder: by a measure, to an early end, with InfoNCE, from a teacher, in a second round."""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event

from cort import score, train
from cort.evaluation.measures import evaluate_run, means, qrels_by_query
from cort.experiment.keys import Experiment
from cort.formats import tables
from cort.formats.runs import Run, read_run
from cort.formats.tokens import Tokens
from cort.models.cross_encoder import (
    Pairs,
    PairSettings,
    load_cross_encoder,
    new_cross_encoder,
)
from cort.models.encoder import load_encoder, texts_of
from cort.models.rerankers import save_reranker
from cort.settings.fields import schema_of
from cort.training.settings import OBJECTIVES, ObjectiveSettings
from tests.support.common import contents, read_curve
from tests.support.training import train_options, write_examples

pytestmark = pytest.mark.usefixtures("training_process")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def examples(world, tmp_path_factory):
    return write_examples(world, tmp_path_factory.mktemp("examples"), epochs=6, seed=1)


@pytest.fixture
def options(lm, caches, examples, tmp_path):
    return partial(train_options, lm, caches, examples, tmp_path)


def test_every_objective_can_be_configured():
    schema = schema_of(Experiment)
    loss = schema["properties"]["encoders"]["additionalProperties"]["properties"]["loss"]
    assert loss["enum"] == list(OBJECTIVES)
    assert loss["default"] == ObjectiveSettings().loss


@pytest.fixture
def by_measure(options, examples, world):
    """Options of a training whose best model is chosen by a measure."""

    def build(**changes):
        named = {"best_model_metric": "nDCG@10", "pool_depth": 4, "validation_run": world.path("ranking.trec")}
        return options(**named | {"validation_qrels": examples / "qrels.validation.parquet"} | changes)

    return build


def measured_alone(folder, examples, caches, world, measure, depth):
    """The measure of a model over the pool, computed from its parts."""
    encoder, template = load_encoder(folder)
    qrels = qrels_by_query(tables.read_table(examples / "qrels.validation.parquet", tables.QRELS))
    first = {query_id: doc_ids[:depth] for query_id, doc_ids, _ in read_run(world.path("ranking.trec"))}
    pool = sorted({doc_id for query_id in qrels for doc_id in [*first[query_id], *qrels[query_id]]})
    vectors = {}
    for kind, name, ids in (("query", "queries.validation", list(qrels)), ("passage", "passages", pool)):
        tokens = Tokens(caches[name])
        rows = tokens.rows_of(pa.array(ids), "x")
        with torch.inference_mode():
            texts = texts_of(tokens, template, encoder.settings, kind)
            vectors[kind] = torch.nn.functional.normalize(texts.encode(encoder, rows, CPU, 1_000), dim=-1)
    scores = (vectors["query"] @ vectors["passage"].T).double().numpy()
    offsets = np.arange(len(qrels) + 1) * len(pool)
    run = Run(list(qrels), offsets, pa.array(pool * len(qrels)), scores.reshape(-1))
    return means(evaluate_run(run, qrels, [measure]), [measure])[measure]


def test_the_best_model_is_that_of_the_best_measure(by_measure, tmp_path, examples, caches, world):
    assert train.main(by_measure(learning_rate=0.004, validate_every=3)) == 0
    rows = [row for row in read_curve(tmp_path / "curve.csv") if row["validation_loss"] is not None]
    found = [row["validation_measure"] for row in rows]
    # The loss would have chosen another model.
    assert int(np.argmin([row["validation_loss"] for row in rows])) != int(np.argmax(found))
    for name, expected in (("best", max(found)), ("last", found[-1])):
        value = measured_alone(tmp_path / "model" / name, examples, caches, world, "nDCG@10", 4)
        assert value == pytest.approx(expected, abs=1e-6)


def test_training_ends_when_it_brings_no_more(options, tmp_path, capsys):
    # At such a rate nothing gets better after a few updates.
    assert train.main(options(learning_rate=0.5, warmup_updates=0, validate_every=1, patience=3)) == 0
    curve = read_curve(tmp_path / "curve.csv")
    losses = [row["validation_loss"] for row in curve]
    assert len(curve) < 1 + 24
    assert int(np.argmin(losses)) == len(losses) - 1 - 3
    assert "no better model in 3 validations: training ends" in capsys.readouterr().err


def test_a_measure_that_nobody_knows_is_refused(by_measure, complaint, tmp_path):
    line = complaint(train.main, by_measure(best_model_metric="MRR@10"), tmp_path / "curve.csv")
    assert line.startswith("measures: found 'MRR@10', expected RR")


def test_a_pool_needs_relevant_passages_and_results(by_measure, complaint, tmp_path, world):
    curve = tmp_path / "curve.csv"
    line = complaint(train.main, by_measure(relevance_level=2), curve)
    assert "found no relevant passage, expected at least one; lower relevance_level or name other qrels" in line
    (tmp_path / "other.trec").write_text("nobody Q0 d1 1 1.0 x\n")
    line = complaint(train.main, by_measure(validation_run=tmp_path / "other.trec"), curve)
    assert line.endswith("no query of the validation qrels, expected their results; name the run of the same split")


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        (
            {"best_model_metric": "RR@10"},
            "--validation-qrels: found none, expected a file with --loss triplet and --best-model-metric RR@10",
        ),
        ({"loss": "margin_mse"}, "--teacher-scores: found none, expected a file with --loss margin_mse"),
        (
            {"validation_run": "x"},
            "--validation-run: found a file, expected none with --loss triplet and --best-model-metric",
        ),
    ],
)
def test_files_go_with_what_needs_them(options, complaint, tmp_path, changes, line):
    assert complaint(train.main, options(**changes), tmp_path / "curve.csv").startswith(line)


@pytest.fixture
def few(examples, tmp_path):
    """Five triples again and again, which even this small model learns by heart."""
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).slice(0, 5)
    tables.write_table(tmp_path / "few.parquet", pa.concat_tables([table] * 96).combine_chunks())
    return tmp_path / "few.parquet"


def test_info_nce_learns_with_relevant_passages_left_out(options, examples, few, tmp_path):
    files = {"qrels": examples / "qrels.train.parquet", "validation_qrels": examples / "qrels.validation.parquet"}
    settings = {"loss": "info_nce", "similarity": "cosine", "temperature": 0.1, **files}
    assert train.main(options(triples=few, **settings)) == 0
    losses = [row["loss"] for row in read_curve(tmp_path / "curve.csv")[1:]]
    # Guessing among 10 passages costs ln 10.
    assert np.mean(losses[-3:]) < 0.5 * np.log(10)
    assert load_encoder(tmp_path / "model" / "best")[0].settings.similarity == "cosine"


@pytest.fixture
def teacher(lm, tmp_path):
    """A cross-encoder of random weights: its scores are as hard to learn as any."""
    model = new_cross_encoder(lm, PairSettings(12, 32), 3)
    save_reranker(model, lm, tmp_path / "teacher")
    return tmp_path / "teacher"


def scored(teacher, caches, triples, split, output):
    inputs = ["--model", str(teacher), "--triples", str(triples), "--queries", caches[f"queries.{split}"]]
    assert score.main([*inputs, "--passages", caches["passages"], "--output", str(output)]) == 0
    return output


def test_an_encoder_learns_the_margins_of_a_teacher(options, examples, caches, teacher, few, tmp_path):
    paths = {
        split: scored(teacher, caches, examples / f"triples.{split}.parquet", split, tmp_path / f"{split}.parquet")
        for split in ("train", "validation")
    }
    # Each pair of the triples once, with the teacher's own logit.
    table = tables.read_table(paths["train"], tables.SCORES).to_pylist()
    triples = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).to_pylist()
    wanted = {(row["query_id"], row[side]) for row in triples for side in ("positive", "negative")}
    assert sorted((row["query_id"], row["doc_id"]) for row in table) == sorted(wanted)
    model, template = load_cross_encoder(teacher)
    pairs = Pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), template, model.settings)
    rows = (
        pairs.queries.rows_of(pa.array([table[5]["query_id"]]), "x"),
        pairs.passages.rows_of(pa.array([table[5]["doc_id"]]), "x"),
    )
    with torch.inference_mode():
        assert pairs.score(model, *rows, CPU, 100).item() == pytest.approx(table[5]["score"], abs=1e-5)
    named = {"teacher_scores": paths["train"], "validation_teacher_scores": paths["validation"]}
    settings = {"loss": "margin_mse", "similarity": "inner_product", "learning_rate": 0.004}
    assert train.main(options(triples=few, **settings, **named)) == 0
    losses = [row["loss"] for row in read_curve(tmp_path / "curve.csv")[1:]]
    assert np.mean(losses[-4:]) < 0.2 * np.mean(losses[:4])


def test_a_pair_without_a_score_is_named(options, examples, caches, teacher, tmp_path, complaint):
    path = scored(teacher, caches, examples / "triples.train.parquet", "train", tmp_path / "scores.parquet")
    held_out = scored(
        teacher, caches, examples / "triples.validation.parquet", "validation", tmp_path / "held_out.parquet"
    )
    table = tables.read_table(path, tables.SCORES)
    tables.write_table(path, table.slice(1))
    named = {"loss": "margin_mse", "teacher_scores": path, "validation_teacher_scores": held_out}
    line = complaint(train.main, options(**named), tmp_path / "curve.csv")
    first = table.slice(0, 1).to_pylist()[0]
    assert line.startswith(f"{path}: found no score of document {first['doc_id']!r} for query {first['query_id']!r}, ")


def test_a_second_round_starts_from_the_first_ones_weights(options, tmp_path):
    assert train.main(options()) == 0
    first = tmp_path / "model" / "last"
    # Of a rate of almost 0, nothing is learnt: what is written is what it started from.
    again = {"start": first, "learning_rate": 1e-30, "output": tmp_path / "again", "decay": "weights"}
    assert train.main(options(**again, weight_decay=0.0)) == 0
    assert contents(tmp_path / "again" / "last") == contents(first)


def test_a_start_of_other_dimensions_is_refused(options, tmp_path, complaint):
    assert train.main(options()) == 0
    line = complaint(train.main, options(start=tmp_path / "model" / "last", dimension=8, output=tmp_path / "again"))
    assert "model/last/projection.safetensors: found bias of shape (16,), expected (8,);" in line
    assert not (tmp_path / "again").exists()


def test_the_curve_can_be_watched_in_tensorboard(options, tmp_path):
    assert train.main(options(events=tmp_path / "events")) == 0
    (file,) = (tmp_path / "events").iterdir()
    found = {}
    with open(file, "rb") as stream:
        for record in records(stream):
            event = Event.FromString(record)
            for value in event.summary.value:
                found.setdefault(value.tag, {})[event.step] = value.simple_value
    curve = read_curve(tmp_path / "curve.csv")
    assert set(found) == {
        *("loss/training", "loss/validation", "progress/learning_rate"),
        *("progress/epoch", "progress/examples_per_second"),
    }
    for tag, column in (("loss/training", "loss"), ("loss/validation", "validation_loss")):
        expected = {int(row["step"]): row[column] for row in curve if row[column] is not None}
        assert found[tag] == pytest.approx(expected, rel=1e-6)


def records(stream):
    """Yield the records of an event file: length, its checksum, content, checksum."""
    while head := stream.read(12):
        yield stream.read(int.from_bytes(head[:8], "little"))
        stream.read(4)

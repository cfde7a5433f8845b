import re
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch
from tensorboardX.proto.event_pb2 import Event
from torch.nn.functional import normalize

from cort import train
from cort.evaluation.measures import evaluate_run, means, qrels_by_query
from cort.formats import tables
from cort.formats.runs import Run, read_run
from cort.formats.shards import Tokens
from cort.models import precision
from cort.models.encoder import load_encoder, new_encoder
from cort.runtime.cli import parser_of
from cort.runtime.command_line import parse_options
from cort.training import loop
from cort.training import triples as training_triples
from cort.training.losses import (
    InfoNCE,
    NoSettings,
    Triplet,
    angular_similarity,
    cosine_similarity,
    info_nce_loss,
    inner_product,
    multilabel_margin_loss,
    triplet_loss,
)
from tests.support.common import contents, read_curve, write_ranked
from tests.support.released import difference, peer
from tests.support.small import encoder_settings
from tests.support.training import batch_of, train_options, without_dropout, write_examples

pytestmark = pytest.mark.usefixtures("training_process")

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def examples(world, tmp_path_factory):
    return write_examples(world, tmp_path_factory.mktemp("examples"), epochs=6, seed=1)


@pytest.fixture(scope="module")
def qrels(examples):
    """Options of a loss that needs judgements."""
    return {"qrels": examples / "qrels.train.parquet", "validation_qrels": examples / "qrels.validation.parquet"}


@pytest.fixture
def options(lm, caches, examples, tmp_path):
    return partial(train_options, lm, caches, examples, tmp_path)


@pytest.fixture
def trained(options, tmp_path):
    """Train; the curve."""

    def run(**changes):
        assert train.main(options(**changes)) == 0
        return read_curve(tmp_path / "curve.csv")

    return run


@pytest.fixture
def refuse(options, complaint, tmp_path):
    """The one-line complaint about some options, without any output."""

    def run(**changes):
        line = complaint(train.main, options(**changes), tmp_path / "curve.csv")
        assert not (tmp_path / "model").exists()
        return line

    return run


def encoded(encoder, tokens, kind, ids=None):
    """Vectors of texts, each encoded alone."""
    texts = encoder.texts(tokens, kind)
    rows = np.arange(len(tokens)) if ids is None else tokens.rows_of(ids, "x")
    with torch.inference_mode():
        return torch.cat([texts.encode(encoder, rows[i : i + 1], CPU) for i in range(len(rows))])


def validation_loss(model, examples, caches, batch_size, loss):
    """The mean loss over complete mini-batches of validation triples, each text encoded alone.

    :param loss: of a slice of the table and the three vectors of its triples.
    """
    encoder = load_encoder(model)
    table = tables.read_table(examples / "triples.validation.parquet", tables.TRIPLES)
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.validation"])
    losses = []
    for start in range(0, table.num_rows - batch_size + 1, batch_size):
        part = table.slice(start, batch_size)
        both = (encoded(encoder, passages, "passage", part[name]) for name in ("positive", "negative"))
        losses.append(loss(part, encoded(encoder, queries, "query", part["query_id"]), *both).item())
    return np.mean(losses)


def triplet(_, *vectors, margin=0.1):
    return triplet_loss(batch_of(*vectors), Triplet(margin=margin), angular_similarity)


def test_the_loss_falls_and_the_best_model_is_kept(trained, tmp_path, examples, caches, lm, world):
    start, *curve = trained(base_model=without_dropout(lm, tmp_path / "lm"), cleaning="fixed")
    assert (start["step"], start["loss"]) == (0, None)
    updates = 20 * 6 // 5
    assert [point["step"] for point in curve] == list(range(1, updates + 1))
    assert [point["epoch"] for point in curve] == pytest.approx([step * 5 / 20 for step in range(1, updates + 1)])
    assert [point["step"] for point in curve if point["validation_loss"] is not None] == [6, 12, 18, 24]
    early, late = (np.mean([point["loss"] for point in part]) for part in (curve[:6], curve[-6:]))
    assert late < 0.6 * early
    validated = [point["validation_loss"] for point in curve if point["validation_loss"] is not None]
    for name, expected in (("best", min(validated)), ("last", validated[-1])):
        loss = validation_loss(tmp_path / "model" / name, examples, caches, 5, triplet)
        assert loss == pytest.approx(expected, rel=1e-4)
    # Every training query finds its passage among all 60 better than by chance.
    encoder = load_encoder(tmp_path / "model" / "last")
    queries, passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    vectors = [encoded(encoder, *texts) for texts in ((queries, "query"), (passages, "passage"))]
    scores = angular_similarity(*vectors)
    rows = [world.doc_ids.index(world.target[query_id]) for query_id in world.query_ids[:20]]
    ranks = [int((scores[i] > scores[i, row]).sum()) + 1 for i, row in enumerate(rows)]
    # By chance the mean is 30.5, its standard deviation 60 / sqrt(12 * 20) = 3.9.
    assert np.mean(ranks) < 30.5 - 4 * 3.9
    theirs = peer("SentenceTransformer", tmp_path / "model" / "last")
    assert difference(theirs.encode_query(world.query_texts[:20]), normalize(vectors[0]).numpy()) <= 1e-5
    assert difference(theirs.encode_document(world.texts), normalize(vectors[1]).numpy()) <= 1e-5
    card = (tmp_path / "model" / "last" / "README.md").read_text()
    assert "| pooling | `mean` |" in card
    assert "ftfy.fix_encoding(text)" in card
    assert str(tmp_path) not in card


@pytest.mark.parametrize("changes", [{}, {"projection": "False", "dimension": 32}])
def test_the_seed_decides_the_bytes(options, tmp_path, changes):
    # Without a projection, no weights are drawn, but dropout is.
    runs = []
    for number, seed in enumerate((1, 1, 2)):
        output = tmp_path / str(number) / "model"
        assert train.main(options(seed=seed, output=output, **changes)) == 0
        runs.append(contents(output))
    assert runs[0] == runs[1]
    assert set(runs[0]) == set(runs[2])
    # The best model may be the start, which has no drawn weights.
    for name in ("last",) if changes else ("best", "last"):
        weights = f"{name}/document_0_Transformer/model.safetensors"
        assert runs[0][weights] != runs[2][weights]


def test_the_first_point_of_the_curve_is_the_loss_of_the_first_triples(trained, tmp_path, lm, caches, examples):
    # Without dropout the loss at the start can be computed again.
    folder = without_dropout(lm, tmp_path / "lm")
    curve = trained(base_model=folder, gradient_accumulation=2, warmup_updates=0, margin=0.3)
    encoder = new_encoder(folder, encoder_settings("mean", 16, 12, 24), 1).eval()
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.train"])
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).slice(0, 10)
    vectors = [encoded(encoder, queries, "query", table["query_id"])]
    vectors += [encoded(encoder, passages, "passage", table[name]) for name in ("positive", "negative")]
    losses = [triplet(None, *(part[i : i + 5] for part in vectors), margin=0.3).item() for i in (0, 5)]
    assert curve[1]["loss"] == pytest.approx(sum(losses) / 2, rel=1e-5)


REPBERT = {"similarity": "inner_product", "projection": "False", "dimension": 32, "loss": "multilabel_margin"}
REPBERT |= {"query_segment": 0, "passage_segment": 1, "decay": "weights", "learning_rate": 0.002}


def test_repbert_recognises_all_relevant_passages_of_a_batch(trained, tmp_path, examples, caches, qrels):
    _, *curve = trained(**REPBERT, **qrels)
    early, late = (np.mean([point["loss"] for point in part]) for part in (curve[:6], curve[-6:]))
    assert late < 0.85 * early
    assert load_encoder(tmp_path / "model" / "last").projection is None
    rows = tables.read_table(qrels["validation_qrels"], tables.QRELS).to_pylist()
    judged = {(row["query_id"], row["doc_id"]) for row in rows if row["relevance"] >= 1}

    def loss(part, *vectors):
        part = part.to_pydict()
        documents = part["positive"] + part["negative"]
        relevant = torch.tensor([[(query, document) in judged for document in documents] for query in part["query_id"]])
        return multilabel_margin_loss(batch_of(*vectors, relevant=relevant), NoSettings(), inner_product)

    found = validation_loss(tmp_path / "model" / "last", examples, caches, 5, loss)
    assert found == pytest.approx(curve[-1]["validation_loss"], rel=1e-4)


@pytest.mark.usefixtures("bf16")
def test_bf16_trains_too(trained, tmp_path):
    _, *curve = trained(precision="bf16")
    assert curve[-1]["loss"] < curve[0]["loss"]
    encoder = load_encoder(tmp_path / "model" / "best")
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}


@pytest.mark.parametrize(("batch_size", "counted"), [(11, 10), (4, 4)])
def test_validation_has_complete_batches_or_one_smaller(trained, tmp_path, examples, caches, batch_size, counted):
    curve = trained(batch_size=batch_size, validate_every=100)
    assert [point["step"] for point in curve] == list(range(len(curve)))
    expected = validation_loss(tmp_path / "model" / "last", examples, caches, counted, triplet)
    assert curve[-1]["validation_loss"] == pytest.approx(expected, rel=1e-4)


def test_an_encoder_learns_from_several_negatives(trained, world, tmp_path, caches, qrels):
    several = write_examples(world, tmp_path, epochs=6, seed=1, negatives=3)
    files = {"triples": several / "triples.train.parquet", "validation_triples": several / "triples.validation.parquet"}
    _, *curve = trained(**files, **qrels, negatives=3, loss="info_nce", similarity="cosine", temperature=0.1)
    assert len(curve) == 20 * 6 // 5
    losses = [row["loss"] for row in curve]
    assert np.mean(losses[-6:]) < 0.9 * np.mean(losses[:6])
    encoder, table = (
        load_encoder(tmp_path / "model" / "last"),
        tables.read_table(several / "triples.validation.parquet", tables.TRIPLES),
    )
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.validation"])
    found = []
    for first in (0, 15):
        one, *others = (
            table.slice(first + place, 15 - place).take(list(range(0, 15 - place, 3))) for place in range(3)
        )
        ids = [one["positive"], *(part["negative"] for part in (one, *others))]
        vectors = [encoded(encoder, passages, "passage", column) for column in ids]
        documents = [doc_id for column in ids for doc_id in column.to_pylist()]
        targets = [world.target[query_id] for query_id in one["query_id"].to_pylist()]
        relevant = [[doc == target and i != j for j, doc in enumerate(documents)] for i, target in enumerate(targets)]
        asked = encoded(encoder, queries, "query", one["query_id"])
        batch = batch_of(asked, *vectors, others=torch.tensor(relevant))
        found.append(info_nce_loss(batch, InfoNCE(temperature=0.1), cosine_similarity).item())
    assert np.mean(found) == pytest.approx(curve[-1]["validation_loss"], rel=1e-4)


def test_rows_that_are_no_groups_of_negatives_are_refused(refuse, examples):
    path = examples / "triples.train.parquet"
    found = "found fewer, expected 7 negatives of one query and positive in consecutive rows; sample the triples again"
    assert refuse(negatives=7).startswith(f"{path}: {found}")


def test_triples_and_judged_pairs_are_looked_up_by_id(caches, examples, world, qrels):
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.train"])
    rows = training_triples.read_triples(str(examples / "triples.train.parquet"), queries, passages)
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).to_pylist()
    names = (world.query_ids, "query_id"), (world.doc_ids, "positive"), (world.doc_ids, "negative")
    for (ids, name), column in zip(names, rows, strict=True):
        assert [ids[row] for row in column] == [row[name] for row in table]
    judgements = tables.read_table(qrels["qrels"], tables.QRELS).to_pylist()
    for level in (1, max(row["relevance"] for row in judgements) + 1):
        judged = {(row["query_id"], row["doc_id"]) for row in judgements if row["relevance"] >= level}
        known = training_triples.read_judgements(str(qrels["qrels"]), level, queries, passages)
        found = known.find(np.arange(len(queries))[:, None], np.arange(len(passages))) >= 0
        expected = [[(query, document) in judged for document in world.doc_ids] for query in world.query_ids[:20]]
        assert found[:20].tolist() == expected
        assert found.sum() == len(judged)


@pytest.fixture
def by_measure(qrels, world):
    """Options of a training whose best model is chosen by a measure."""
    named = {"best_model_metric": "nDCG@10", "pool_depth": 4, "validation_run": world.path("ranking.trec")}
    return named | {"validation_qrels": qrels["validation_qrels"]}


def measured_alone(folder, qrels, caches, world, measure, depth):
    """The measure of a model over the pool, computed from its parts."""
    encoder = load_encoder(folder)
    qrels = qrels_by_query(tables.read_table(qrels, tables.QRELS))
    first = {query_id: doc_ids[:depth] for query_id, doc_ids, _ in read_run(world.path("ranking.trec"))}
    pool = sorted({doc_id for query_id in qrels for doc_id in [*first[query_id], *qrels[query_id]]})
    texts = ("queries.validation", "query", list(qrels)), ("passages", "passage", pool)
    vectors = [encoded(encoder, Tokens(caches[name]), kind, pa.array(ids)) for name, kind, ids in texts]
    offsets = np.arange(len(qrels) + 1) * len(pool)
    scores = angular_similarity(*vectors).double().numpy().reshape(-1)
    run = Run(list(qrels), offsets, pa.array(pool * len(qrels)), scores)
    return means(evaluate_run(run, qrels, [measure]), [measure])[measure]


def test_the_best_model_is_that_of_the_best_measure(trained, by_measure, tmp_path, qrels, caches, world, monkeypatch):
    # Vectors of seven passages at once.
    monkeypatch.setattr("cort.training.selection.NUMBERS_AT_ONCE", 7 * 16)
    curve = trained(**by_measure, learning_rate=0.004, validate_every=3)
    rows = [row for row in curve if row["validation_loss"] is not None]
    values = [row["validation_measure"] for row in rows]
    # The loss would have chosen another model.
    assert int(np.argmin([row["validation_loss"] for row in rows])) != int(np.argmax(values))
    for name, expected in (("best", max(values)), ("last", values[-1])):
        folder = tmp_path / "model" / name
        value = measured_alone(folder, qrels["validation_qrels"], caches, world, "nDCG@10", 4)
        assert value == pytest.approx(expected, abs=1e-6)


def test_training_ends_when_it_brings_no_more(trained, capsys):
    # At such a rate nothing gets better after a few updates.
    curve = trained(learning_rate=0.5, warmup_updates=0, validate_every=1, patience=3)
    losses = [row["validation_loss"] for row in curve]
    assert len(curve) < 1 + 24
    assert int(np.argmin(losses)) == len(losses) - 1 - 3
    assert "no better model in 3 validations: training ends" in capsys.readouterr().err


@pytest.fixture
def few(examples, tmp_path):
    """Five triples again and again, which even this small model learns by heart."""
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).slice(0, 5)
    tables.write_table(tmp_path / "few.parquet", pa.concat_tables([table] * 192).combine_chunks())
    return tmp_path / "few.parquet"


def test_info_nce_learns_with_relevant_passages_left_out(trained, qrels, few, tmp_path):
    _, *curve = trained(triples=few, loss="info_nce", similarity="cosine", temperature=0.1, **qrels)
    losses = [row["loss"] for row in curve]
    # Guessing among 10 passages costs ln 10.
    assert np.mean(losses[-3:]) < 0.5 * np.log(10)
    assert load_encoder(tmp_path / "model" / "best").similarity == "cosine"


def test_a_guide_that_leaves_nothing_out_changes_nothing(trained, qrels, tmp_path, monkeypatch):
    # No margin from 0 on is sure to leave nothing out.
    monkeypatch.setattr(train.Options, "model_validate", lambda values: train.Options.model_construct(**values))
    curves = []
    for number, changes in enumerate(({}, {"relative_margin": -1e6}, {"relative_margin": 0.0})):
        curve = trained(loss="info_nce", **qrels, output=tmp_path / str(number), gradient_accumulation=4, **changes)
        curves.append([row | {"examples_per_second": 0} for row in curve])
    assert curves[0] == curves[1] != curves[2]


@pytest.fixture
def taught(make_reranker, caches, examples, tmp_path, stage):
    """Options of training with a cross-encoder of random weights: its scores are as hard to learn as any."""
    named, scores = {"model": make_reranker(), "passages": caches["passages"]}, {}
    for split, prefix in (("train", ""), ("validation", "validation_")):
        inputs = named | {"triples": examples / f"triples.{split}.parquet", "queries": caches[f"queries.{split}"]}
        scores[f"{prefix}teacher_scores"] = stage("score", **inputs, output=tmp_path / f"{split}.parquet")
    return {"loss": "margin_mse", "similarity": "inner_product", **scores}


@pytest.mark.parametrize(
    ("changes", "share"), [({"loss": "margin_mse"}, 0.2), ({"loss": "kl", "temperature": 1, "matryoshka": [4, 8]}, 0.5)]
)
def test_an_encoder_learns_the_scores_of_a_teacher(trained, taught, few, changes, share):
    losses = [row["loss"] for row in trained(**{**taught, "triples": few, "learning_rate": 0.004, **changes})[1:]]
    assert np.mean(losses[-4:]) < share * np.mean(losses[:4])


def test_the_first_numbers_of_vectors_are_trained_as_the_whole_ones(trained, tmp_path, examples, caches):
    curve = trained(matryoshka=[2, 8], validate_every=100)

    def loss(part, *vectors):
        return sum(triplet(part, *(vector[:, :size] for vector in vectors)) for size in (2, 8, 16))

    found = validation_loss(tmp_path / "model" / "last", examples, caches, 5, loss)
    assert curve[-1]["validation_loss"] == pytest.approx(found, rel=1e-4)


def test_a_pair_without_a_score_is_named(refuse, taught):
    path = taught["teacher_scores"]
    table = tables.read_table(path, tables.SCORES)
    tables.write_table(path, table.slice(1))
    first = table.slice(0, 1).to_pylist()[0]
    found = f"{path}: found no score of document {first['doc_id']!r} for query {first['query_id']!r}, "
    assert refuse(**taught).startswith(found)


def test_a_second_round_starts_from_the_first_ones_weights(trained, options, tmp_path, complaint):
    trained(gradient_accumulation=8)
    first = tmp_path / "model" / "last"
    # At a rate of almost 0, nothing is learnt: what is written is the start.
    again = {"start": first, "learning_rate": 1e-30, "output": tmp_path / "again", "decay": "weights"}
    trained(**again, weight_decay=0.0, gradient_accumulation=8)
    found, expected = contents(tmp_path / "again" / "last"), contents(first)
    # Their settings differ.
    assert found.pop("README.md") != expected.pop("README.md")
    assert found == expected
    third = tmp_path / "third"
    line = complaint(train.main, options(start=first, dimension=8, output=third), third)
    assert line.startswith(f"{first}: found layers.2.linear.weight of shape (16, 32), expected (8, 32);")


def test_checkpoints_belong_to_settings_files_and_models_not_to_places(options, examples, make_encoder, lm, tmp_path):
    def identity(**changes):
        args = parser_of(train.Options).parse_args(options(**changes))
        return loop._identity(parse_options(train.Options, args))

    assert identity(output=tmp_path / "other", threads=2, checkpoint_every=5) == identity()
    encoders = [make_encoder(dimension=16, seed=seed) for seed in (1, 2)]
    others = [{}, {"seed": 2}, {"base_model": without_dropout(lm, tmp_path / "lm")}]
    others += [{"triples": examples / "triples.validation.parquet"}, *({"start": encoder} for encoder in encoders)]
    assert len({identity(**changes) for changes in others}) == len(others)


def test_the_curve_can_be_watched_in_tensorboard(trained, tmp_path):
    curve = trained(events=tmp_path / "events", gradient_accumulation=4)
    (file,) = (tmp_path / "events").iterdir()
    shown = {}
    with open(file, "rb") as stream:
        # A record is its length, a checksum of it, the content, and a checksum of that.
        while head := stream.read(12):
            event = Event.FromString(stream.read(int.from_bytes(head[:8], "little")))
            stream.read(4)
            for value in event.summary.value:
                shown.setdefault(value.tag, {})[event.step] = value.simple_value
    assert set(shown) == {"loss", "validation_loss", "learning_rate", "epoch", "examples_per_second"}
    for column in ("loss", "validation_loss"):
        expected = {int(row["step"]): row[column] for row in curve if row[column] is not None}
        assert shown[column] == pytest.approx(expected, rel=1e-6)


NONE = "found none, expected a file with"


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"qrels": "x"}, "--qrels: found a file, expected none with --loss triplet"),
        ({"loss": "info_nce", "qrels": "x"}, f"--validation-qrels: {NONE} --loss info_nce"),
        ({"best_model_metric": "RR@10"}, f"--validation-qrels: {NONE} --loss triplet and --best-model-metric RR@10;"),
        ({"loss": "margin_mse"}, f"--teacher-scores: {NONE} --loss margin_mse"),
        ({"matryoshka": [8, 17]}, "--matryoshka: found 17, expected at most the 16 numbers of a vector; lower it"),
        ({"validation_run": "x"}, "--validation-run: found a file, expected none with --loss triplet and --best-model"),
        ({"precision": "fp16"}, "precision: found fp16 on a CPU, expected fp32 or bf16"),
        ({"precision": "tf32"}, "precision: found tf32 on a CPU, expected fp32 or bf16"),
        ({"passage_length": 49}, "passage_length: found 49, expected 3 to 48 tokens for this model"),
        ({"projection": "False"}, "dimension: found 16, expected the model's 32 without a projection"),
        (
            {"learning_rate": 10, "weight_decay": 100, "warmup_updates": 0},
            "update 4: found the loss nan on the examples 15 to 19,",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_wrong_settings_are_one_line(refuse, monkeypatch, changes, line):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refuse(**changes).startswith(line)


def test_a_measure_that_is_unknown_or_has_nothing_to_measure_is_refused(refuse, by_measure, tmp_path):
    other = write_ranked(tmp_path / "other.trec", {"nobody": ["d1"]})
    for changes, words in (
        ({"best_model_metric": "MRR@10"}, "measures: found 'MRR@10', expected RR"),
        ({"relevance_level": 2}, "found no relevant passage"),
        ({"validation_run": other}, "no query of the validation qrels"),
    ):
        assert words in refuse(**by_measure | changes)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda rows: rows[3].update(query_id="nobody"), "the unknown id 'nobody', .*queries.train.arrow"),
        (lambda rows: rows[3].update(negative="nobody"), "the unknown id 'nobody', .*passages.arrow"),
    ],
)
def test_triples_of_unknown_ids_are_refused(refuse, tmp_path, examples, change, words):
    path = tmp_path / "t.parquet"
    change(rows := tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).to_pylist())
    tables.write_table(path, pa.Table.from_pylist(rows, tables.TRIPLES))
    assert re.match(f"{path}: found {words}", refuse(triples=path))


@pytest.mark.parametrize(("has", "chosen"), [({"avx512_bf16": True}, "bf16"), ({}, "fp32")])
def test_a_machine_trains_in_bf16_if_it_has_instructions_for_it(trained, tmp_path, monkeypatch, capsys, has, chosen):
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: has)
    monkeypatch.setattr(precision, "is_right", lambda *_: True)
    trained(precision="auto", checkpoints=str(tmp_path / "checkpoints"))
    assert f"on cpu in {chosen}" in capsys.readouterr().err
    assert not (tmp_path / "checkpoints").exists()

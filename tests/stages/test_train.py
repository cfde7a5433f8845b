import itertools
import json
import shutil
from functools import partial

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import train
from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.encoder import Texts, load_encoder, texts_of
from cort.models.transformer import forward_by_length
from cort.system.errors import shorten
from cort.training import triples as training_triples
from cort.training.losses import batch_triplet_loss, multilabel_margin_loss
from cort.training.settings import ObjectiveSettings
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


def validation_loss(model, examples, caches, margin, batch_size):
    """The mean of the paper's loss over whole batches of validation triples, each text encoded alone."""
    encoder, template = load_encoder(model)
    table = tables.read_table(examples / "triples.validation.parquet", tables.TRIPLES)
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.validation"])

    def vectors(tokens, kind, ids):
        texts = texts_of(tokens, template, encoder.settings, kind)
        rows = tokens.rows_of(ids, "x")
        return torch.cat([texts.encode(encoder, rows[i : i + 1], CPU, 1) for i in range(len(rows))])

    losses = []
    with torch.inference_mode():
        for start in range(0, table.num_rows - batch_size + 1, batch_size):
            part = table.slice(start, batch_size)
            both = (vectors(passages, "passage", part[name]) for name in ("positive", "negative"))
            losses.append(batch_triplet_loss(vectors(queries, "query", part["query_id"]), *both, margin).item())
    return np.mean(losses)


def triplet(margin):
    """The paper's loss of a batch, as the stage uses it."""
    return training_triples.make_objective(ObjectiveSettings(margin=margin), "angular")


def test_the_loss_falls_and_the_best_model_is_kept(options, tmp_path, examples, caches, lm):
    assert train.main(options()) == 0
    start, *curve = read_curve(tmp_path / "curve.csv")
    assert start["step"] == 0
    assert start["loss"] is None
    updates = 20 * 6 // 5
    assert [point["step"] for point in curve] == list(range(1, updates + 1))
    assert [point["epoch"] for point in curve] == pytest.approx([step * 5 / 20 for step in range(1, updates + 1)])
    assert [point["step"] for point in curve if point["validation_loss"] is not None] == [6, 12, 18, 24]
    early, late = (np.mean([point["loss"] for point in part]) for part in (curve[:6], curve[-6:]))
    assert late < 0.85 * early
    validated = [point["validation_loss"] for point in curve if point["validation_loss"] is not None]
    for name, expected in (("best", min(validated)), ("last", validated[-1])):
        loss = validation_loss(tmp_path / "model" / name, examples, caches, margin=0.1, batch_size=5)
        assert loss == pytest.approx(expected, rel=1e-4)
    names = {path.name for path in lm.iterdir()} | {"cort.json", "projection.safetensors"}
    for name in ("best", "last"):
        assert {path.name for path in (tmp_path / "model" / name).glob("[!.]*")} == names
    settings = json.loads((tmp_path / "model" / "best" / "cort.json").read_text())
    assert settings == {
        "pooling": "mean",
        "dimension": 16,
        "query_length": 12,
        "passage_length": 24,
        "similarity": "angular",
        "projection": True,
        "query_segment": 1,
        "passage_segment": 0,
        "activation": "tanh",
        "query_prompt": "",
        "passage_prompt": "",
    }


def test_a_tiny_world_is_learnt(options, tmp_path, world, caches):
    """Every training query finds its passage among all 60 better than by chance."""
    assert train.main(options()) == 0
    encoder, template = load_encoder(tmp_path / "model" / "last")
    vectors = {}
    with torch.inference_mode():
        for kind, name in (("passage", "passages"), ("query", "queries.train")):
            tokens = Tokens(caches[name])
            texts = texts_of(tokens, template, encoder.settings, kind)
            vectors[kind] = torch.nn.functional.normalize(texts.encode(encoder, np.arange(len(tokens)), CPU, 1000))
    scores = vectors["query"] @ vectors["passage"].T
    rows = [world.doc_ids.index(world.target[query_id]) for query_id in world.query_ids[:20]]
    ranks = [int((scores[i] > scores[i, row]).sum()) + 1 for i, row in enumerate(rows)]
    # By chance the mean is 30.5, its standard deviation 60 / sqrt(12 * 20) = 3.9.
    assert np.mean(ranks) < 30.5 - 4 * 3.9


def test_the_seed_decides_the_bytes(options, tmp_path):
    runs = []
    for number, seed in enumerate((1, 1, 2)):
        output = tmp_path / str(number)
        assert train.main(options(seed=seed, output=output)) == 0
        runs.append(contents(output))
    assert runs[0] == runs[1]
    assert set(runs[0]) == set(runs[2])
    for name in ("best", "last"):
        assert runs[0][f"{name}/model.safetensors"] != runs[2][f"{name}/model.safetensors"]


def test_the_first_point_of_the_curve_is_the_loss_of_the_first_triples(options, tmp_path, lm, caches, examples):
    from cort.models.encoder import new_encoder
    from cort.models.settings import EncoderSettings
    from cort.models.tokenizer import load_template

    # Without dropout the loss at the start can be computed again.
    folder = tmp_path / "lm"
    shutil.copytree(lm, folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    assert train.main(options(base_model=folder, gradient_accumulation=2, warmup_updates=0, margin=0.3)) == 0
    encoder = new_encoder(folder, EncoderSettings("mean", 16, 12, 24), 1)
    template = load_template(folder)
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.train"])
    rows = training_triples.read_triples(str(examples / "triples.train.parquet"), queries, passages)
    as_query, as_passage = Texts(queries, template, 12, 1), Texts(passages, template, 24, 0)
    texts = training_triples.TripleTexts(rows, as_query, as_passage, triplet(0.3))
    losses = [texts.losses(np.arange(start, start + 5)[None], alone(encoder)) for start in (0, 5)]
    assert read_curve(tmp_path / "curve.csv")[1]["loss"] == pytest.approx(sum(losses).item() / 2, rel=1e-5)


def alone(model):
    """Run each sequence by itself."""
    return lambda sequences: forward_by_length(model, sequences, CPU, 1)


def repbert(options, examples, **changes):
    """Options of a training as RepBERT's."""
    settings = {"similarity": "inner_product", "projection": "False", "dimension": 32}
    settings |= {"query-segment": 0, "passage-segment": 1}
    settings |= {"loss": "multilabel_margin", "decay": "weights", "qrels": examples / "qrels.train.parquet"}
    settings |= {"validation-qrels": examples / "qrels.validation.parquet", "learning-rate": 0.002}
    return options(**{name.replace("-", "_"): value for name, value in (settings | changes).items()})


def test_repbert_recognises_all_relevant_passages_of_a_batch(options, tmp_path, examples, caches, world):
    assert train.main(repbert(options, examples)) == 0
    _, *curve = read_curve(tmp_path / "curve.csv")
    early, late = (np.mean([point["loss"] for point in part]) for part in (curve[:6], curve[-6:]))
    assert late < 0.85 * early
    encoder, template = load_encoder(tmp_path / "model" / "last")
    assert encoder.projection is None
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.validation"])
    table = tables.read_table(examples / "triples.validation.parquet", tables.TRIPLES)
    qrels = tables.read_table(examples / "qrels.validation.parquet", tables.QRELS).to_pylist()
    judged = {(row["query_id"], row["doc_id"]) for row in qrels if row["relevance"] >= 1}
    losses = []
    with torch.inference_mode():
        for start in range(0, table.num_rows - 4, 5):
            part = table.slice(start, 5).to_pydict()
            documents = part["positive"] + part["negative"]
            vectors = [
                torch.cat([texts.encode(encoder, rows[i : i + 1], CPU, 1) for i in range(len(rows))])
                for texts, rows in (
                    (texts_of(queries, template, encoder.settings, "query"), queries.rows_of(part["query_id"], "x")),
                    (texts_of(passages, template, encoder.settings, "passage"), passages.rows_of(documents, "x")),
                )
            ]
            relevant = [[(query, document) in judged for document in documents] for query in part["query_id"]]
            losses.append(multilabel_margin_loss(*vectors, torch.tensor(relevant)).item())
    assert np.mean(losses) == pytest.approx(curve[-1]["validation_loss"], rel=1e-4)


def test_a_projection_that_is_left_out_needs_the_models_dimension(options, examples, capsys):
    assert train.main(repbert(options, examples, dimension=16)) == 1
    assert "dimension: found 16, expected the model's 32 without a projection; set it to 32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"loss": "triplet"}, "--qrels: found a file, expected none with --loss triplet"),
        ({"validation-qrels": None}, "--validation-qrels: found none, expected a file with --loss multilabel_margin"),
    ],
)
def test_judgements_go_with_their_loss(options, examples, complaint, tmp_path, changes, line):
    arguments = repbert(options, examples, **changes)
    if None in changes.values():
        place = arguments.index("--validation-qrels")
        del arguments[place : place + 2]
    assert complaint(train.main, arguments, tmp_path / "model").startswith(line)


def test_the_loss_of_a_batch_is_that_of_texts_encoded_alone(lm, caches, examples):
    from cort.models.encoder import new_encoder
    from cort.models.settings import EncoderSettings
    from cort.models.tokenizer import load_template

    encoder, template = new_encoder(lm, EncoderSettings("cls", 16, 12, 24), 1).eval(), load_template(lm)
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.train"])
    rows = training_triples.read_triples(str(examples / "triples.train.parquet"), queries, passages)
    as_query, as_passage = Texts(queries, template, 12, 1), Texts(passages, template, 24, 0)

    def vectors(texts, column):
        return torch.cat([texts.encode(encoder, column[i : i + 1], CPU, 1) for i in range(len(column))])

    expected = [
        batch_triplet_loss(
            vectors(as_query, rows[0, part]),
            vectors(as_passage, rows[1, part]),
            vectors(as_passage, rows[2, part]),
            0.1,
        ).item()
        for part in (slice(0, 7), slice(7, 14))
    ]
    texts = training_triples.TripleTexts(rows, as_query, as_passage, triplet(0.1))
    together = lambda sequences: forward_by_length(encoder, sequences, CPU, 100)  # noqa: E731
    assert texts.losses(np.arange(14).reshape(2, 7), together).tolist() == pytest.approx(expected, rel=1e-4)


def test_triples_are_looked_up_by_id(caches, examples, world):
    rows = training_triples.read_triples(
        str(examples / "triples.train.parquet"), Tokens(caches["queries.train"]), Tokens(caches["passages"])
    )
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES).to_pylist()
    assert [world.query_ids[row] for row in rows[0]] == [row["query_id"] for row in table]
    assert [world.doc_ids[row] for row in rows[1]] == [row["positive"] for row in table]
    assert [world.doc_ids[row] for row in rows[2]] == [row["negative"] for row in table]


def test_bf16_trains_too(options, tmp_path):
    assert train.main(options(precision="bf16")) == 0
    _, *curve = read_curve(tmp_path / "curve.csv")
    assert curve[-1]["loss"] < curve[0]["loss"]
    encoder, _ = load_encoder(tmp_path / "model" / "best")
    assert {weight.dtype for weight in encoder.parameters()} == {torch.float32}


def test_fp16_is_refused_on_a_cpu(options, tmp_path, complaint):
    if torch.cuda.is_available():
        pytest.skip("fp16 is fine here")
    line = complaint(train.main, options(precision="fp16"), tmp_path / "curve.csv")
    assert line == "precision: found fp16 on a CPU, expected fp32 or bf16; change it"
    assert not (tmp_path / "model").exists()


def test_a_diverging_training_stops_with_one_line(options, tmp_path, complaint):
    changes = {"learning_rate": 1e30, "warmup_updates": 0}
    line = complaint(train.main, options(**changes), tmp_path / "curve.csv")
    assert line.startswith("update 2: found the loss nan on the examples 5 to 9, expected a finite number; lower")
    assert not (tmp_path / "model").exists()


def test_an_unknown_id_is_refused(options, tmp_path, examples, complaint):
    table = tables.read_table(examples / "triples.train.parquet", tables.TRIPLES)
    for name, known in (("query_id", "queries.train.arrow"), ("negative", "passages.arrow")):
        values = table[name].to_pylist()
        values[3] = "nobody"
        changed = table.set_column(table.column_names.index(name), name, pa.array(values))
        path = tmp_path / f"{name}.parquet"
        tables.write_table(path, changed)
        line = complaint(train.main, options(triples=path), tmp_path / "curve.csv")
        assert line.startswith(f"{path}: found the unknown id 'nobody', expected ids of ")
        assert known in line


@pytest.mark.parametrize("name", ["triples", "validation_triples"])
def test_an_empty_table_is_refused(options, tmp_path, complaint, name):
    path = tmp_path / "none.parquet"
    tables.write_table(path, tables.TRIPLES.empty_table())
    line = complaint(train.main, options(**{name: path}), tmp_path / "curve.csv")
    assert line == f"{path}: found no triples, expected at least one; sample them again"


def test_a_triple_of_one_passage_is_refused(options, examples, tmp_path, complaint):
    path = examples / "triples.train.parquet"
    table = tables.read_table(path, tables.TRIPLES)
    column = pa.array([*table["negative"].to_pylist()[:2], *table["positive"].to_pylist()[2:]])
    same = tmp_path / "triples.parquet"
    tables.write_table(same, table.set_column(table.schema.get_field_index("negative"), "negative", column))
    line = complaint(train.main, options(triples=same), tmp_path / "curve.csv")
    doc_id = shorten(column[2].as_py())
    expected = f"row 3: found the passage {doc_id} as positive and negative, expected two passages; remove the row"
    assert line == f"{same}: {expected}"


def test_tokens_of_another_tokenizer_are_refused(options, tmp_path, lm, complaint):
    folder = tmp_path / "lm"
    shutil.copytree(lm, folder)
    (folder / "tokenizer.json").write_text((folder / "tokenizer.json").read_text() + "\n")
    line = complaint(train.main, options(base_model=folder), tmp_path / "curve.csv")
    assert "passages.arrow: found tokens of tokenizer " in line


def test_a_length_over_the_positions_is_refused(options, tmp_path, complaint):
    line = complaint(train.main, options(passage_length=49), tmp_path / "curve.csv")
    assert line == "passage_length: found 49, expected 3 to 48 tokens for this model; change it"


@pytest.mark.parametrize(("batch_size", "counted"), [(11, 10), (4, 4)])
def test_validation_is_in_whole_batches_or_in_one_smaller(options, tmp_path, examples, caches, batch_size, counted):
    assert train.main(options(batch_size=batch_size, validate_every=100)) == 0
    _, point = (point for point in read_curve(tmp_path / "curve.csv") if point["validation_loss"] is not None)
    expected = validation_loss(tmp_path / "model" / "last", examples, caches, margin=0.1, batch_size=counted)
    assert point["validation_loss"] == pytest.approx(expected, rel=1e-4)


def test_steps_of_the_curve_rise(options, tmp_path):
    assert train.main(options(batch_size=3)) == 0
    steps = [point["step"] for point in read_curve(tmp_path / "curve.csv")]
    assert all(one < other for one, other in itertools.pairwise(steps))


def test_judged_pairs_are_found_and_no_others(caches, examples, world):
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.train"])
    path = str(examples / "qrels.train.parquet")
    rows = tables.read_table(path, tables.QRELS).to_pylist()
    for level in (1, max(row["relevance"] for row in rows) + 1):
        judged = {(row["query_id"], row["doc_id"]) for row in rows if row["relevance"] >= level}
        known = training_triples.read_judgements(path, level, queries, passages)
        found = known.find(np.arange(len(queries))[:, None], np.arange(len(passages))) >= 0
        expected = [[(query, document) in judged for document in world.doc_ids] for query in world.query_ids[:20]]
        assert found[:20].tolist() == expected
        assert found.sum() == len(judged)

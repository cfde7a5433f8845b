import json
import re
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import pairs as sample_pairs
from cort import train_reranker
from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.batching import frame_pair, pad
from cort.models.cross_encoder import (
    Pairs,
    PairSettings,
    load_cross_encoder,
    new_cross_encoder,
)
from cort.models.rerankers import RERANKERS, Kind, load_reranker, save_reranker
from cort.models.tokenizer import load_template
from cort.system.errors import InputError
from cort.training.losses import pointwise_loss
from cort.training.pairs import read_pairs
from tests.support.common import command_line, contents, read_curve

CPU = torch.device("cpu")
SETTINGS = PairSettings(query_length=8, max_length=24)


def make_pairs(caches, template, settings=SETTINGS):
    return Pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), template, settings)


def all_rows(count=60):
    return np.arange(count) % 20, np.arange(count) % 60


def test_the_logit_is_that_of_the_classifier_on_the_framed_pair(lm, caches):
    model, template = new_cross_encoder(lm, SETTINGS, 3).eval(), load_template(lm)
    pairs = make_pairs(caches, template)
    queries, passages = all_rows()
    with torch.inference_mode():
        scores = pairs.score(model, queries, passages, CPU, 200)
        assert scores.shape == (60,)
        for position in range(0, 60, 7):
            query, passage = pairs.queries[queries[position]], pairs.passages[passages[position]]
            batch = pad([frame_pair(query, passage, template, 8, 24)], template.pad)
            expected = model.classifier(**batch).logits
            assert expected.shape == (1, 1)
            assert scores[position].item() == pytest.approx(expected.item(), abs=1e-6)


def test_query_and_passage_are_not_exchangeable(lm, caches):
    model, template = new_cross_encoder(lm, SETTINGS, 3).eval(), load_template(lm)
    tokens = Tokens(caches["queries.train"])
    pairs = Pairs(tokens, tokens, template, SETTINGS)
    with torch.inference_mode():
        one, other = (pairs.score(model, np.array(a), np.array(b), CPU, 99) for a, b in (([0], [1]), ([1], [0])))
    assert one.item() != other.item()


def test_the_budget_changes_the_last_bits_at_most(lm, caches):
    model, template = new_cross_encoder(lm, SETTINGS, 3).eval(), load_template(lm)
    pairs = make_pairs(caches, template)
    with torch.inference_mode():
        scores = [pairs.score(model, *all_rows(), CPU, budget) for budget in (1, 100, 100_000)]
    assert torch.allclose(scores[0], scores[1], atol=1e-6)
    assert torch.allclose(scores[0], scores[2], atol=1e-6)


def test_pairs_are_batched_by_their_length_after_cutting(lm, caches):
    template = load_template(lm)
    pairs = make_pairs(caches, template)
    shapes, lengths = [], []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            shapes.append(tuple(batch["input_ids"].shape))
            lengths.extend(batch["attention_mask"].sum(1).tolist())
            return torch.zeros(len(batch["input_ids"]))

    queries, passages = all_rows()
    pairs.score(Spy(), queries, passages, CPU, 100)
    query_lengths = np.minimum(pairs.queries.lengths[queries], 8 - 2)
    assert sorted(lengths) == sorted(np.minimum(query_lengths + pairs.passages.lengths[passages] + 3, 24))
    assert all(rows * longest <= 100 for rows, longest in shapes)
    assert lengths == sorted(lengths, reverse=True)


def test_the_head_is_drawn_from_the_seed_and_the_rest_is_the_base_model(lm):
    from transformers import AutoModel

    one, same, other = (new_cross_encoder(lm, SETTINGS, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {"classifier.classifier.weight"}
    for name, weight in AutoModel.from_pretrained(lm).state_dict().items():
        assert torch.equal(one[f"classifier.bert.{name}"], weight)


MODELS = {
    "albert": {},
    "electra": {},
    "roberta": {},
    "distilbert": {
        **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")),
        **{"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    },
}


@pytest.mark.parametrize("kind", [None, *MODELS])
def test_every_type_of_model_trains_saves_and_loads(kind, lm, make_base_model, caches, tmp_path):
    folder = make_base_model(model_type=kind, **MODELS[kind]) if kind else lm
    model, template = new_cross_encoder(folder, SETTINGS, 3).eval(), load_template(folder)
    pairs = make_pairs(caches, template)
    scores = pairs.score(model, *all_rows(10), CPU, 99)
    scores.sum().backward()
    # Padding changes nothing.
    alone = torch.cat([pairs.score(model, *(rows[i : i + 1] for rows in all_rows(10)), CPU, 99) for i in range(10)])
    assert torch.allclose(scores, alone, atol=1e-6)
    save_reranker(model, folder, tmp_path / "m")
    loaded, loaded_template = load_cross_encoder(tmp_path / "m")
    assert loaded_template == template
    assert loaded.settings == SETTINGS
    assert not loaded.training
    before, after = model.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.inference_mode():
        # Not equal to the last bit: weights mapped from a file are aligned otherwise in memory.
        assert torch.allclose(pairs.score(loaded, *all_rows(10), CPU, 99), scores, atol=1e-6)
        again, _ = load_cross_encoder(tmp_path / "m")
        assert torch.equal(*(pairs.score(reranker, *all_rows(10), CPU, 99) for reranker in (loaded, again)))
    assert scores.std() > 0.01
    names = {path.name for path in folder.iterdir()} | {"reranker.json", "head.safetensors"}
    assert {path.name for path in (tmp_path / "m").glob("[!.]*")} == names


LINEAR = replace(SETTINGS, head="linear")


def test_the_linear_head_is_one_layer_on_the_first_token(lm, caches):
    from transformers import AutoModel

    model, template = new_cross_encoder(lm, LINEAR, 3).eval(), load_template(lm)
    pairs = make_pairs(caches, template, LINEAR)
    batch = pad([frame_pair(pairs.queries[3], pairs.passages[5], template, 8, 24)], template.pad)
    with torch.inference_mode():
        states = AutoModel.from_pretrained(lm).eval()(**batch).last_hidden_state[0, 0]
        expected = model.head.weight[0] @ states + model.head.bias[0]
        found = pairs.score(model, np.array([3]), np.array([5]), CPU, 99)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert not [name for name in model.state_dict() if "pooler" in name]
    one, same, other = (new_cross_encoder(lm, LINEAR, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert {name for name in one if not torch.equal(one[name], other[name])} == {"head.weight", "head.bias"}


@pytest.mark.parametrize("kind", [None, "electra", "distilbert"])
def test_the_linear_head_trains_saves_and_loads(kind, lm, make_base_model, caches, tmp_path):
    folder = make_base_model(model_type=kind, **MODELS[kind]) if kind else lm
    model, template = new_cross_encoder(folder, LINEAR, 3).eval(), load_template(folder)
    pairs = make_pairs(caches, template, LINEAR)
    scores = pairs.score(model, *all_rows(10), CPU, 99)
    scores.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    save_reranker(model, folder, tmp_path / "m")
    loaded, _ = load_reranker(tmp_path / "m")
    assert loaded.settings == LINEAR
    with torch.inference_mode():
        assert torch.allclose(pairs.score(loaded, *all_rows(10), CPU, 99), scores, atol=1e-6)
    # Trained further, it keeps its head.
    again = new_cross_encoder(tmp_path / "m", LINEAR, 9).state_dict()
    assert torch.equal(again["head.weight"], model.state_dict()["head.weight"])
    (tmp_path / "m" / "head.safetensors").unlink()
    with pytest.raises(InputError, match=r"train it again|train again"):
        load_reranker(tmp_path / "m")


def test_a_folder_says_nothing_of_the_usual_head(lm, tmp_path):
    save_reranker(new_cross_encoder(lm, SETTINGS, 3), lm, tmp_path / "m")
    assert "head" not in (tmp_path / "m" / "reranker.json").read_text("utf-8")


def test_another_library_can_load_the_folder(make_reranker):
    from transformers import AutoModelForSequenceClassification

    assert AutoModelForSequenceClassification.from_pretrained(make_reranker()).config.num_labels == 1


@pytest.mark.parametrize(
    ("query_length", "max_length", "line"),
    [
        (8, 49, r"max_length: found 49, expected 10 to 48 tokens"),
        (2, 24, r"query_length: found 2, expected 3 to 48 tokens"),
        (49, 24, r"query_length: found 49, expected 3 to 48 tokens"),
        # A query of 24 tokens with its special ones, one more after the passage: none left for it.
        (24, 25, r"max_length: found 25, expected 26 to 48 tokens"),
        (24, 24, r"max_length: found 24, expected 26 to 48 tokens"),
    ],
)
def test_lengths_the_model_cannot_take(lm, query_length, max_length, line):
    with pytest.raises(InputError, match=f"^{line} for this model; change it$"):
        new_cross_encoder(lm, PairSettings(query_length, max_length), 3)


def test_a_folder_that_is_no_reranker(make_reranker, tmp_path, lm):
    with pytest.raises(InputError, match=rf"^{lm}: found no re-ranker \(.*\), expected a folder that `train_reranker`"):
        load_cross_encoder(lm)
    folder = tmp_path / "m"
    shutil.copytree(make_reranker(), folder)
    (folder / "reranker.json").write_text('{"query_length": 3}')
    with pytest.raises(InputError, match=r"reranker.json: found no 'max_length', expected"):
        load_cross_encoder(folder)
    (folder / "reranker.json").write_text('{"query_length": 8, "max_length": 24}')
    (folder / "model.safetensors").write_bytes(b"half")
    with pytest.raises(InputError, match="found no whole model"):
        load_cross_encoder(folder)


# Training


@pytest.fixture(scope="module")
def examples(world, tmp_path_factory):
    """Pairs, two negatives each, of 4 epochs of the 20 training queries, and of one of the 10 validation queries."""
    folder = tmp_path_factory.mktemp("pairs")
    table = tables.read_table(world.path("qrels.parquet"), tables.QRELS)
    for name, part, epochs in (("train", (0, 20), 4), ("validation", (20, 10), 1)):
        tables.write_table(folder / f"qrels.{name}.parquet", table.slice(*part))
        options = ["--qrels", str(folder / f"qrels.{name}.parquet"), "--run", world.path("ranking.trec")]
        options += ["--first-rank", "2", "--last-rank", "20", "--epochs", str(epochs), "--negatives", "2"]
        outputs = ["--output", str(folder / f"{name}.parquet"), "--output-counts", str(folder / "counts.json")]
        assert sample_pairs.main([*options, *outputs]) == 0
    return folder


@pytest.fixture
def options(lm, caches, examples, tmp_path, training_process):
    def build(**changes):
        named = {
            "base-model": lm,
            "pairs": examples / "train.parquet",
            "validation-pairs": examples / "validation.parquet",
            "passages": caches["passages"],
            "queries": caches["queries.train"],
            "validation-queries": caches["queries.validation"],
            "query-length": 12,
            "max-length": 32,
            "batch-size": 12,
            "gradient-accumulation": 1,
            "learning-rate": 0.002,
            "warmup-updates": 2,
            "validate-every": 5,
            "seed": 1,
            "output": tmp_path / "model",
            "output-curve": tmp_path / "curve.csv",
            "output-selection": tmp_path / "selection.json",
        }
        return command_line(named, changes)

    return build


def test_training_lowers_the_loss_and_keeps_the_best_model(options, tmp_path, examples, caches):
    assert train_reranker.main(options()) == 0
    start, *curve = read_curve(tmp_path / "curve.csv")
    # 20 queries of 3 pairs, 4 epochs, 12 pairs an update.
    assert [point["step"] for point in curve] == list(range(1, 21))
    assert curve[-1]["epoch"] == 4
    assert np.mean([point["loss"] for point in curve[-5:]]) < np.mean([point["loss"] for point in curve[:5]])
    validated = [point["validation_loss"] for point in curve if point["validation_loss"] is not None]
    assert len(validated) == 4
    selection = json.loads((tmp_path / "selection.json").read_text())
    assert selection["start"] == start["validation_loss"]
    # The start takes part.
    assert selection["best"] == min(start["validation_loss"], *validated)
    table = tables.read_table(examples / "validation.parquet", tables.PAIRS)
    for name, expected in (("best", selection["best"]), ("last", validated[-1])):
        model, template = load_cross_encoder(tmp_path / "model" / name)
        pairs = Pairs(Tokens(caches["queries.validation"]), Tokens(caches["passages"]), template, model.settings)
        rows = pairs.queries.rows_of(table["query_id"], "x"), pairs.passages.rows_of(table["doc_id"], "x")
        with torch.inference_mode():
            logits = torch.cat([pairs.score(model, rows[0][[i]], rows[1][[i]], CPU, 1) for i in range(len(rows[0]))])
        # The mean over all pairs, though 30 are no whole number of batches of 12.
        loss = pointwise_loss(logits, torch.tensor(table["relevance"].to_pylist())).mean()
        assert loss.item() == pytest.approx(expected, rel=1e-4)


def test_the_first_loss_is_that_of_the_first_pairs(options, tmp_path, lm, caches, examples):
    # Without dropout the loss at the start can be computed again.
    folder = shutil.copytree(lm, tmp_path / "lm")
    config = json.loads((folder / "config.json").read_text())
    config |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    (folder / "config.json").write_text(json.dumps(config))
    assert train_reranker.main(options(base_model=folder, gradient_accumulation=5)) == 0
    settings = PairSettings(query_length=12, max_length=32)
    model, pairs = new_cross_encoder(folder, settings, 1), make_pairs(caches, load_template(folder), settings)
    table = tables.read_table(examples / "train.parquet", tables.PAIRS).slice(0, 5 * 12)
    rows = pairs.queries.rows_of(table["query_id"], "x"), pairs.passages.rows_of(table["doc_id"], "x")
    with torch.inference_mode():
        logits = torch.cat([pairs.score(model, rows[0][[i]], rows[1][[i]], CPU, 1) for i in range(len(rows[0]))])
    expected = pointwise_loss(logits, torch.tensor(table["relevance"].to_pylist())).mean().item()
    assert read_curve(tmp_path / "curve.csv")[1]["loss"] == pytest.approx(expected, rel=1e-4)


def test_the_seed_decides_the_bytes(options, tmp_path):
    runs = []
    for number, seed in enumerate((1, 1, 2)):
        output = tmp_path / str(number)
        assert train_reranker.main(options(seed=seed, output=output)) == 0
        runs.append(contents(output))
    assert runs[0] == runs[1]
    assert set(runs[0]) == set(runs[2])
    for name in ("best", "last"):
        assert runs[0][f"{name}/model.safetensors"] != runs[2][f"{name}/model.safetensors"]


def test_pairs_are_looked_up_by_id(examples, caches, world):
    path = str(examples / "train.parquet")
    rows = read_pairs(path, make_pairs(caches, None), SimpleNamespace(loss="pointwise", pos_weight=1.0))
    table = tables.read_table(path, tables.PAIRS).to_pylist()
    assert [world.query_ids[row] for row in rows.queries] == [row["query_id"] for row in table]
    assert [world.doc_ids[row] for row in rows.passages] == [row["doc_id"] for row in table]
    assert rows.relevance.tolist() == [row["relevance"] for row in table]


def test_training_complains(options, tmp_path, complaint, examples):
    curve = tmp_path / "curve.csv"
    none = tmp_path / "none.parquet"
    tables.write_table(none, tables.PAIRS.empty_table())
    line = complaint(train_reranker.main, options(pairs=none), curve)
    assert line == f"{none}: found no pairs, expected at least one; sample them again"
    table = tables.read_table(examples / "train.parquet", tables.PAIRS)
    unknown = table.set_column(2, "doc_id", pa.array(["nobody"] * table.num_rows))
    tables.write_table(none, unknown)
    line = complaint(train_reranker.main, options(validation_pairs=none), curve)
    assert line.startswith(f"{none}: found the unknown id ")
    line = complaint(train_reranker.main, options(max_length=12), curve)
    assert line == "max_length: found 12, expected 14 to 48 tokens for this model; change it"
    line = complaint(train_reranker.main, options(learning_rate=1e30, warmup_updates=0), curve)
    assert re.match(r"update 2: found the loss nan on the example \d+, expected a finite number; ", line)
    assert not (tmp_path / "model").exists()


def test_the_settings_are_saved(options, tmp_path):
    assert train_reranker.main(options(gradient_accumulation=20)) == 0
    settings = json.loads((tmp_path / "model" / "best" / "reranker.json").read_text())
    assert settings == {"query_length": 12, "max_length": 32, "kind": "cross_encoder"}


def test_a_kind_of_reranker_is_one_entry(options, tmp_path, monkeypatch, complaint):
    made = []

    def new(*arguments):
        made.append(arguments)
        return new_cross_encoder(*arguments)

    line = complaint(train_reranker.main, options(kind="other"), tmp_path / "curve.csv")
    kinds = "conv_knrm or cross_encoder or knrm or late_interaction"
    assert line == f"--kind: found the re-ranker 'other', expected {kinds}; name one of these"
    monkeypatch.setitem(RERANKERS, "other", Kind(new, lambda folder: ("loaded", folder)))
    assert train_reranker.main(options(kind="other", gradient_accumulation=20)) == 0
    assert len(made) == 1
    assert load_reranker(tmp_path / "model" / "best") == ("loaded", tmp_path / "model" / "best")

import json
import math

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import train_reranker
from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.cross_encoder import new_cross_encoder
from cort.models.rerankers import load_reranker, new_reranker
from cort.models.settings import PairSettings
from cort.training.losses import Pointwise, pointwise_loss
from tests.conftest import saved
from tests.support.common import contents, read_curve
from tests.support.released import peer
from tests.support.small import pair_settings
from tests.support.training import long_training_options, without_dropout, write_examples

CPU = torch.device("cpu")
COMMON = {"query_length": 6, "max_length": 20}


@pytest.mark.parametrize("kind", ["knrm", "conv_knrm"])
def test_kernel_pooling_is_a_format_of_its_own(lm, caches, tmp_path, kind):
    settings = PairSettings(**COMMON, kind=kind, filters=5)
    model = new_reranker(lm, settings, 3).eval()
    folder = saved(model, tmp_path / "model")
    texts = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    loaded, rows = load_reranker(folder), np.arange(6)
    with torch.inference_mode():
        scores, again = (each.pairs(*texts).score(each, rows, rows, CPU) for each in (model, loaded))
    assert torch.equal(scores, again)
    found = json.loads((folder / "reranker.json").read_text("utf-8"))
    assert found == settings.model_dump()
    with pytest.raises((OSError, ValueError)):
        peer("CrossEncoder", folder)


@pytest.fixture(scope="module")
def examples(world, tmp_path_factory):
    """Pairs of 6 epochs; `few.parquet` repeats those of five queries, which even a small model can memorize."""
    folder = write_examples(world, tmp_path_factory.mktemp("examples"), epochs=6, seed=42)
    few = tables.read_table(folder / "pairs.train.parquet", tables.PAIRS).slice(0, 10)
    tables.write_table(folder / "few.parquet", pa.concat_tables([few] * 60).combine_chunks())
    return folder


@pytest.fixture
def options(lm, caches, examples, tmp_path, training_process):
    def build(**changes):
        named = {"batch_size": 12, "gradient_accumulation": 1, "validate_every": 5, **changes}
        return long_training_options(lm, caches, examples, "train_reranker", tmp_path, **named)

    return build


def logits_of(path, model, caches, queries="queries.train", count=None):
    """Logits of the pairs of a table, scored one by one, and their relevance."""
    table = tables.read_table(path, tables.PAIRS).slice(0, count)
    pairs = model.pairs(Tokens(caches[queries]), Tokens(caches["passages"]))
    rows = pairs.queries.rows_of(table["query_id"], "x"), pairs.passages.rows_of(table["doc_id"], "x")
    with torch.inference_mode():
        logits = [pairs.score(model, rows[0][[row]], rows[1][[row]], CPU) for row in range(table.num_rows)]
    return torch.cat(logits), torch.tensor(table["relevance"].to_pylist())


def test_training_keeps_the_model_with_the_lowest_validation_loss(options, tmp_path, examples, caches):
    assert train_reranker.main(options()) == 0
    start, *curve = read_curve(tmp_path / "curve.csv")
    # 20 queries of 2 pairs, 6 epochs, 12 pairs per update.
    assert [point["step"] for point in curve] == list(range(1, 21))
    assert curve[-1]["epoch"] == 6
    validated = [point["validation_loss"] for point in curve if point["validation_loss"] is not None]
    assert len(validated) == 4
    selection = json.loads((tmp_path / "selection.json").read_text())
    assert selection["start"] == start["validation_loss"]
    assert selection["best"] == min(start["validation_loss"], *validated)
    for name, expected in (("best", selection["best"]), ("last", validated[-1])):
        model = load_reranker(tmp_path / "model" / name)
        assert (model.query_length, model.max_length) == (12, 32)
        path = examples / "pairs.validation.parquet"
        # The mean over all pairs, although their number is no multiple of the batch size.
        loss = pointwise_loss(*logits_of(path, model, caches, "queries.validation"), Pointwise()).mean()
        assert loss.item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("kind", "loss", "changes"),
    [
        ("cross_encoder", "pointwise", {"learning_rate": 0.004}),
        ("late_interaction", "softmax", {"learning_rate": 0.004, "dimension": 8, "term_weights": "True"}),
        ("knrm", "softmax", {"learning_rate": 0.02}),
        ("conv_knrm", "pointwise", {"learning_rate": 0.02, "filters": 8}),
    ],
)
def test_training_lowers_the_loss_and_the_same_seed_gives_the_same_bytes(
    options, examples, tmp_path, kind, loss, changes
):
    changes |= {"kind": kind, "loss": loss, "batch_size": 5 if loss == "softmax" else 10, "validate_every": 100}
    changes["pairs"] = examples / "few.parquet"
    for name in ("one", "same"):
        assert train_reranker.main(options(output=tmp_path / name / "model", **changes)) == 0
    losses = [point["loss"] for point in read_curve(tmp_path / "curve.csv")[1:]]
    # Late interaction does much better than guessing which of two passages is relevant.
    limit = 0.5 * math.log(2) if kind == "late_interaction" else 0.8 * np.mean(losses[:3])
    assert np.mean(losses[-5:]) < limit
    assert contents(tmp_path / "one") == contents(tmp_path / "same")


def test_the_first_loss_is_that_of_the_first_pairs(options, tmp_path, lm, caches, examples):
    # Without dropout, the loss of the first update can be recomputed.
    folder = without_dropout(lm, tmp_path / "lm")
    assert train_reranker.main(options(base_model=folder, gradient_accumulation=5)) == 0
    model = new_cross_encoder(folder, pair_settings(12, 32), 1)
    path = examples / "pairs.train.parquet"
    logits = logits_of(path, model, caches, count=5 * 12)
    expected = pointwise_loss(*logits, Pointwise()).mean().item()
    assert read_curve(tmp_path / "curve.csv")[1]["loss"] == pytest.approx(expected, rel=1e-4)


def test_training_complains(options, tmp_path, complaint, examples):
    table = tables.read_table(examples / "pairs.train.parquet", tables.PAIRS)
    unknown = table.set_column(2, "doc_id", pa.array(["nobody"] * table.num_rows))
    swapped = table.set_column(1, "query_id", table["query_id"].take([*range(1, table.num_rows), 0]))
    files = {"unknown": unknown, "late": table.slice(1), "swapped": swapped}
    for name, rows in files.items():
        tables.write_table(tmp_path / name, rows)
    for changes, found in (
        ({"validation_pairs": tmp_path / "unknown"}, f"{tmp_path}/unknown: found the unknown id "),
        *(
            (
                {"pairs": tmp_path / name, "loss": "softmax"},
                f"{tmp_path}/{name}: row {row}: found a negative without a pos",
            )
            for name, row in (("late", 1), ("swapped", 2))
        ),
        ({"max_length": 12}, "max_length: found 12, expected 14 to 48"),
        ({"kind": "other"}, "--kind: found the re-ranker 'other', expected "),
        (
            {"learning_rate": 10, "weight_decay": 100, "warmup_updates": 0},
            "update 4: found the loss nan on the example ",
        ),
    ):
        assert complaint(train_reranker.main, options(**changes), tmp_path / "curve.csv").startswith(found)
    assert not (tmp_path / "model").exists()

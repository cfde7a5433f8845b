"""Late interaction against loops over tokens, and the stages that use it."""

import math
import string

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import score, train_reranker
from cort.formats import tables
from cort.formats.runs import read_run, write_run
from cort.formats.tokens import Tokens
from cort.models.late_interaction import max_similarity, new_late_interaction
from cort.models.rerankers import load_reranker
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template, load_tokenizer
from cort.models.transformer import forward_by_length
from cort.system.progress import Counter
from cort.training import pairs as pairs_of_training
from cort.training.losses import pointwise_loss, softmax_loss
from tests.support.common import command_line, contents, read_curve
from tests.support.rerankers import check_that_it_is_kept
from tests.support.training import write_examples

CPU = torch.device("cpu")


def settings_of(**changes):
    named = {"query_length": 8, "max_length": 24, "kind": "late_interaction", "dimension": 5}
    return PairSettings(**{**named, **changes})


def make_pairs(lm, caches, **changes):
    model = new_late_interaction(lm, settings_of(**changes), 3).eval()
    return model, model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), load_template(lm))


def states_of(model, ids, segment, seen):
    """Last states of one text, (tokens, hidden)."""
    batch = {
        "input_ids": torch.tensor([ids]),
        "attention_mask": torch.tensor([seen]),
        "token_type_ids": torch.full((1, len(ids)), segment),
    }
    return model.transformer(**{name: batch[name] for name in model.inputs}).last_hidden_state[0]


def similarity_of(one, other, kind):
    if kind != "dot":
        one, other = ([number / math.hypot(*vector) for number in vector] for vector in (one, other))
    if kind == "l2":
        return -sum((a - b) ** 2 for a, b in zip(one, other, strict=True))
    return sum(a * b for a, b in zip(one, other, strict=True))


def score_alone(model, pairs, query, passage):
    """The score of one pair, computed token by token."""
    settings, template = model.settings, pairs.template
    asked = [*template.before, *pairs.queries[query][: settings.query_length - template.extra], *template.after]
    seen = [1] * len(asked)
    if settings.fill_queries:
        missing = settings.query_length - len(asked)
        asked, seen = asked + [pairs.fill] * missing, seen + [0] * missing
    text = [*template.before, *pairs.passages[passage][: settings.max_length - template.extra], *template.after]
    query_states, passage_states = states_of(model, asked, 1, seen), states_of(model, text, 0, [1] * len(text))
    left_out = set(model.punctuation.tolist())
    layer = model.head["vectors"].weight
    kept = [state for state, token in zip(passage_states, text, strict=True) if token not in left_out]
    vectors = [(layer @ state).tolist() for state in kept]
    total = 0.0
    for state in query_states:
        vector, weight = (layer @ state).tolist(), 1.0
        if settings.term_weights:
            weight = math.log1p(math.exp(model.head["weights"](state).item()))
        total += weight * max(similarity_of(vector, other, settings.similarity) for other in vectors)
    return total


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"similarity": "dot", "term_weights": True},
        {"similarity": "l2", "fill_queries": True},
        {"fill_queries": True, "skip_punctuation": True, "term_weights": True},
    ],
)
def test_the_score_is_the_weighted_sum_of_the_best_matches(lm, caches, changes):
    model, pairs = make_pairs(lm, caches, **changes)
    if changes.get("skip_punctuation"):
        # A token of the texts takes the part of punctuation.
        model.punctuation = torch.tensor([int(pairs.passages[0][0])])
    queries, passages = np.arange(12) % 5, np.arange(12) % 7
    with torch.inference_mode():
        scores = pairs.score(model, queries, passages, CPU, 100)
        for place in range(0, 12, 3):
            expected = score_alone(model, pairs, queries[place], passages[place])
            assert scores[place].item() == pytest.approx(expected, rel=1e-4)


def test_each_text_is_encoded_once_and_costs_once(lm, caches):
    model, pairs = make_pairs(lm, caches)
    seen = []

    def forward(sequences):
        seen.append(len(sequences.lengths))
        return forward_by_length(model, sequences, CPU, 100)

    queries, passages = np.array([4, 4, 2, 4]), np.array([1, 0, 1, 0])
    with torch.inference_mode():
        scores = pairs.scores(forward, queries, passages)
    assert seen == [2, 2]
    assert scores[1] == scores[3]
    assert pairs.lengths(queries, passages)[3] == 0
    one = [pairs.lengths(queries[[i]], passages[[i]])[0] for i in range(3)]
    both = [np.minimum(tokens.lengths + 2, most) for tokens, most in ((pairs.queries, 8), (pairs.passages, 24))]
    assert one == [both[0][q] + both[1][p] for q, p in zip(queries[:3], passages[:3], strict=True)]
    assert pairs.lengths(queries, passages).sum() == both[0][[4, 2]].sum() + both[1][[1, 0]].sum()


@pytest.mark.parametrize("kind", ["cosine", "dot", "l2"])
def test_a_passage_without_tokens_ranks_last(kind):
    query = torch.tensor([[0.6, 0.8, 1.0], [1.0, 0.0, 0.5]]).expand(2, 2, 3).requires_grad_()
    # The opposite of a token of the query, and nothing.
    passages = torch.tensor([[[-0.6, -0.8, 1.0]], [[0.6, 0.8, 0.0]]])
    found = max_similarity(query, passages, kind)
    found.sum().backward()
    assert found[1] < found[0] < 0
    assert torch.isfinite(query.grad).all()


def test_punctuation_is_found_in_the_vocabulary_alone(lm):
    model = new_late_interaction(lm, settings_of(skip_punctuation=True), 3)
    tokenizer = load_tokenizer(lm)
    known = {tokenizer.token_to_id(mark) for mark in string.punctuation} - {None}
    assert model.punctuation.tolist() == sorted(known)


def test_a_model_is_the_same_after_it_was_written(lm, caches, tmp_path):
    model, pairs = make_pairs(lm, caches, term_weights=True)
    assert check_that_it_is_kept(model, pairs, lm, tmp_path / "model")["kind"] == "late_interaction"


def test_losses_are_those_of_their_formulas():
    logits, relevance = torch.tensor([[2.0, 1.0, 0.0], [0.5, 1.5, -math.inf]]), torch.tensor([[1, 0, 0], [1, 0, 0]])
    expected = [math.log(1 + math.exp(-1) + math.exp(-2)), math.log(1 + math.exp(1))]
    assert softmax_loss(logits, relevance).tolist() == pytest.approx(expected)
    # Guessing among eight.
    assert softmax_loss(torch.zeros(1, 8), torch.eye(8)[:1]).item() == pytest.approx(math.log(8))
    found = pointwise_loss(torch.tensor([[0.0], [0.0]]), torch.tensor([[1], [0]]), 3.0)
    assert found.tolist() == pytest.approx([3 * math.log(2), math.log(2)])


@pytest.fixture
def options(lm, caches, world, tmp_path):
    examples = write_examples(world, tmp_path, epochs=6, seed=42)

    def build(**changes):
        named = {
            "base-model": lm,
            "pairs": examples / "pairs.train.parquet",
            "validation-pairs": examples / "pairs.validation.parquet",
            "passages": caches["passages"],
            "queries": caches["queries.train"],
            "validation-queries": caches["queries.validation"],
            "kind": "late_interaction",
            "dimension": 8,
            "query-length": 12,
            "max-length": 24,
            "term-weights": True,
            "loss": "softmax",
            "batch-size": 5,
            "gradient-accumulation": 1,
            "learning-rate": 0.004,
            "warmup-updates": 2,
            "validate-every": 8,
            "seed": 1,
            "output": tmp_path / "model",
            "output-curve": tmp_path / "curve.csv",
            "output-selection": tmp_path / "selection.json",
        }
        return command_line(named, changes)

    return build


def test_training_lowers_the_loss_and_scores_are_those_of_the_model(options, tmp_path, caches, world, training_process):
    # Five groups of two, which even this small model learns by heart.
    few = tables.read_table(tmp_path / "pairs.train.parquet", tables.PAIRS).slice(0, 10)
    tables.write_table(tmp_path / "few.parquet", pa.concat_tables([few] * 40).combine_chunks())
    assert train_reranker.main(options(pairs=tmp_path / "few.parquet")) == 0
    _, *curve = read_curve(tmp_path / "curve.csv")
    # Five groups an update.
    assert [point["step"] for point in curve] == list(range(1, 41))
    assert np.mean([point["loss"] for point in curve[-5:]]) < 0.5 * math.log(2)
    output, run = tmp_path / "scores.parquet", tmp_path / "run.trec"
    write_run(run, list(read_run(world.path("ranking.trec")))[:5], "x")
    inputs = ["--model", tmp_path / "model" / "best", "--candidates", run, "--depth", 2]
    inputs += ["--queries", caches["queries.train"], "--passages", caches["passages"], "--output", output]
    assert score.main([str(part) for part in inputs]) == 0
    table = tables.read_table(output, tables.SCORES)
    model, template = load_reranker(tmp_path / "model" / "best")
    pairs = model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), template)
    rows = pairs.queries.rows_of(table["query_id"], "x"), pairs.passages.rows_of(table["doc_id"], "x")
    with torch.inference_mode():
        again = pairs.score(model, *rows, CPU)
    assert table["score"].to_numpy() == pytest.approx(again.numpy(), abs=1e-5)


@pytest.mark.parametrize("kind", ["late_interaction", "cross_encoder"])
def test_validation_shows_every_text_that_goes_through_the_model(
    options, tmp_path, world, kind, monkeypatch, training_process
):
    seen = []

    class Spy(Counter):
        def __exit__(self, *reason):
            super().__exit__(*reason)
            seen.append((self._what, self.count, self._total))

    monkeypatch.setattr(pairs_of_training, "Counter", Spy)
    # Some pairs at a time, as with many candidates.
    monkeypatch.setattr(pairs_of_training, "PAIRS_AT_ONCE", 7)
    changes = {"validate_every": 100, "best_model_metric": "RR@10", "pool_depth": 5}
    files = {"validation_run": world.path("ranking.trec"), "validation_qrels": tmp_path / "qrels.validation.parquet"}
    assert train_reranker.main(options(kind=kind, **changes, **files)) == 0
    assert len(seen) == 2
    assert all(what == "texts in validation" and count == total for what, count, total in seen)


def test_the_seed_decides_the_bytes(options, tmp_path, training_process):
    for name in ("one", "other"):
        assert train_reranker.main(options(output=tmp_path / name, validate_every=100)) == 0
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_groups_begin_with_a_positive(options, tmp_path, complaint):
    path = tmp_path / "pairs.train.parquet"
    tables.write_table(path, tables.read_table(path, tables.PAIRS).slice(1))
    line = complaint(train_reranker.main, options(), tmp_path / "curve.csv")
    expected = "found a negative in the first row, expected a positive, which begins a group; sample the pairs again"
    assert line == f"{path}: {expected}"

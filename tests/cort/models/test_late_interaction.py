import math
import string

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.late_interaction import find_punctuation, load_late_interaction, max_similarity, new_late_interaction
from tests.conftest import saved
from tests.support.framing import frame_of
from tests.support.released import peer, take_a_step
from tests.support.small import pair_settings

CPU = torch.device("cpu")


def make_pairs(lm, caches, **changes):
    model = new_late_interaction(lm, pair_settings(8, 24, "late_interaction", dimension=5, **changes), 3).eval()
    return model, model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))


def score_alone(model, pairs, query, passage):
    """The score of one pair, token by token, from the states of the transformer."""
    states = []
    for tokens, kind, row in ((pairs.queries, "query", query), (pairs.passages, "passage", passage)):
        ids, segments = frame_of(model.texts(tokens, kind).sequences(np.array([row])))
        batch = {"input_ids": ids, "token_type_ids": segments, "attention_mask": np.ones_like(ids)}
        batch = {name: torch.from_numpy(value)[None] for name, value in batch.items()}
        states.append(model.transformer(**batch).last_hidden_state[0])
    layer, total = model.layers[1], 0.0
    others = [layer.vectors(state) for state in states[1]]
    for state in states[0]:
        weight = math.log1p(math.exp(layer.weights(state).item()))
        total += weight * max(float(layer.vectors(state) @ other) for other in others)
    return total


@pytest.mark.usefixtures("small_batches")
def test_term_weights_are_learned_and_only_this_project_loads_them(lm, caches, tmp_path):
    model, pairs = make_pairs(lm, caches, similarity="dot", term_weights=True)
    queries, passages = np.arange(12) % 5, np.arange(12) % 7
    take_a_step(model, lambda: pairs.score(model, queries, passages, CPU))
    folder = saved(model, tmp_path / "model")
    loaded = load_late_interaction(folder)
    with torch.inference_mode():
        scores = pairs.score(model, queries, passages, CPU)
        assert torch.equal(loaded.pairs(pairs.queries, pairs.passages).score(loaded, queries, passages, CPU), scores)
        for place in range(0, 12, 3):
            expected = score_alone(model, pairs, queries[place], passages[place])
            assert scores[place].item() == pytest.approx(expected, rel=1e-4)
    with pytest.raises(ValueError, match="trust_remote_code"):
        peer("MultiVectorEncoder", folder)


def test_each_text_costs_once(lm, caches):
    _, pairs = make_pairs(lm, caches)
    queries, passages = np.array([4, 4, 2, 4]), np.array([1, 0, 1, 0])
    assert pairs.lengths(queries, passages)[3] == 0
    one = [pairs.lengths(queries[[i]], passages[[i]])[0] for i in range(3)]
    both = [np.minimum(tokens.lengths + 2, most) for tokens, most in ((pairs.queries, 8), (pairs.passages, 24))]
    assert one == [both[0][q] + both[1][p] for q, p in zip(queries[:3], passages[:3], strict=True)]
    assert pairs.lengths(queries, passages).sum() == both[0][[4, 2]].sum() + both[1][[1, 0]].sum()


@pytest.mark.parametrize("kind", ["cosine", "dot"])
def test_a_passage_without_tokens_ranks_last(kind):
    query = torch.tensor([[0.6, 0.8, 1.0], [1.0, 0.0, 0.5]]).expand(2, 2, 3).requires_grad_()
    # The opposite of a token of the query, and nothing.
    passages = torch.tensor([[[-0.6, -0.8, 1.0]], [[0.6, 0.8, 0.0]]])
    found = max_similarity(query, passages, kind)
    found.sum().backward()
    assert found[1] < found[0] < 0
    assert torch.isfinite(query.grad).all()


def test_punctuation_is_found_in_the_vocabulary_alone(lm, monkeypatch):
    # The vocabulary has letters, but no punctuation.
    assert find_punctuation(lm) == []
    monkeypatch.setattr(string, "punctuation", "!b,k?")
    assert find_punctuation(lm) == ["b", "k"]

import math
import string

import numpy as np
import pytest
import torch

from cort.formats.tokens import Tokens
from cort.models.late_interaction import max_similarity, new_late_interaction
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template, load_tokenizer
from cort.models.transformer import forward_by_length

CPU = torch.device("cpu")


def settings_of(**changes):
    named = {"query_length": 8, "max_length": 24, "kind": "late_interaction", "dimension": 5}
    return PairSettings(**{**named, **changes})


def make_pairs(lm, caches, **changes):
    model = new_late_interaction(lm, settings_of(**changes), 3).eval()
    return model, model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), load_template(lm))


def states_of(model, ids, segment, seen):
    """Last states of one text, (tokens, hidden)."""
    batch = {"input_ids": torch.tensor([ids]), "attention_mask": torch.tensor([seen])}
    batch |= {"token_type_ids": torch.full((1, len(ids)), segment)}
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

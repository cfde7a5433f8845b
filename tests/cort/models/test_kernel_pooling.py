import math

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.kernel_pooling import LEAST, MEANS, WIDTHS, new_kernel_pooling
from cort.models.loading import load_transformer
from cort.models.settings import PairSettings

CPU = torch.device("cpu")


def make_pairs(lm, caches, **changes):
    settings = PairSettings(**{"query_length": 6, "max_length": 20, "kind": "knrm", "filters": 5, **changes})
    model = new_kernel_pooling(lm, settings, 3).eval()
    return model, model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))


def cosine(one, other):
    lengths = max(math.hypot(*one), 1e-12) * max(math.hypot(*other), 1e-12)
    return sum(a * b for a, b in zip(one, other, strict=True)) / lengths


def features(query, passage):
    """The kernels of two lists of vectors, word by word."""
    found = []
    for mean, width in zip(MEANS, WIDTHS, strict=True):
        counts = [sum(math.exp(-((cosine(q, d) - mean) ** 2) / (2 * width**2)) for d in passage) for q in query]
        found.append(sum(0.01 * math.log(max(count, LEAST)) for count in counts))
    return found


def ngrams(model, vectors):
    """Vectors of the n-grams of each length, one beginning at each word; behind the text there is nothing."""
    views = []
    for length, layer in enumerate(model.ngrams, 1):
        weight, bias = layer.weight.double(), layer.bias.double()  # (filters, e, n)
        padded = [*vectors, *[[0.0] * len(vectors[0])] * (length - 1)] if vectors else []
        views.append(
            [
                torch.relu(bias + sum(weight[:, :, n] @ torch.tensor(padded[at + n]).double() for n in range(length)))
                for at in range(len(vectors))
            ]
        )
    return [[one.tolist() for one in view] for view in views] or [vectors]


def score_alone(model, pairs, query, passage):
    words = [
        [model.vectors.weight[token].tolist() for token in tokens[row][:most]]
        for tokens, row, most in ((pairs.queries, query, 6), (pairs.passages, passage, 20))
    ]
    queries, passages = (ngrams(model, one) for one in words)
    found = [value for one in queries for other in passages for value in features(one, other)]
    return float(model.weigh.bias + model.weigh.weight[0] @ torch.tensor(found))


@pytest.mark.usefixtures("small_batches")
@pytest.mark.parametrize("changes", [{}, {"kind": "conv_knrm"}])
def test_the_score_weighs_soft_counts_of_each_kernel(lm, caches, changes):
    model, pairs = make_pairs(lm, caches, **changes)
    queries, passages = np.arange(12) % 5, np.arange(12) % 7
    with torch.inference_mode():
        scores = pairs.score(model, queries, passages, CPU)
        for place in range(0, 12, 3):
            expected = score_alone(model, pairs, queries[place], passages[place])
            assert scores[place].item() == pytest.approx(expected, rel=1e-3, abs=1e-4)


def test_word_vectors_are_those_of_the_base_model(lm):
    own = load_transformer(lm).get_input_embeddings().weight
    assert torch.equal(new_kernel_pooling(lm, PairSettings(kind="knrm"), 3).vectors.weight, own)

"""Exact search on a GPU: the ids and scores of the CPU to the last bit."""

import contextlib
from unittest.mock import patch

import numpy as np
import pytest

from cort.formats.shards import TOKEN_VECTORS
from cort.retrieval.exact import ExactIndex
from cort.retrieval.max_similarity import QueryVectors, TokenIndex
from cort.retrieval.vectors import open_vectors
from tests.support import vectors

pytestmark = pytest.mark.gpu
DIMENSION = 48
#: how many queries at once, and results of each
ASKED = ((1, 1_000), (3, 1_000), (40, 100), (300, 10))


def ties(seed, count):
    """Unit vectors, of which a tenth occurs several times."""
    generator = np.random.default_rng(seed)
    found = vectors.random_unit(generator, count, DIMENSION)
    found[: count // 10] = found[generator.integers(0, max(count // 50, 1), count // 10)]
    return found


def check(index, reference, asked, depth):
    for one, other in zip(index.search(asked, depth), reference.search(asked, depth), strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


@pytest.fixture(scope="module")
def passages(device, tmp_path_factory):
    count = 5_000 if device == "cpu" else 40_000
    path = tmp_path_factory.mktemp("vectors") / "passages.arrow"
    return open_vectors([vectors.shard(path, vectors.names("d", count), ties(5, count))])


# As if the GPU had memory for the vectors and their halves, for halves alone, and for nothing.
@pytest.mark.parametrize("bytes_each", [None, 4, 0], ids=["held", "halves", "streamed"])
@pytest.mark.parametrize("devices", [1, 2])
def test_passages_are_found_as_on_the_cpu(device, passages, devices, bytes_each):
    free = (bytes_each or 0) * len(passages) * DIMENSION
    full = contextlib.nullcontext() if bytes_each is None else patch("torch.cuda.mem_get_info", return_value=(free, 0))
    with full:
        index = ExactIndex(passages, [device] * devices, 2)
    reference = ExactIndex(passages, first="single")
    for count, depth in ASKED:
        check(index, reference, ties(count, count), depth)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_tokens_are_found_as_on_the_cpu(device, similarity, tmp_path):
    counts = np.random.default_rng(6).integers(0, 30, 300 if device == "cpu" else 4_000)
    tokens = np.split(ties(7, counts.sum()).astype(np.float16), np.cumsum(counts)[:-1])
    paths = vectors.token_shards(tmp_path, vectors.names("d", len(counts)), tokens, similarity=similarity)
    passages = open_vectors(paths, TOKEN_VECTORS)
    asked = [QueryVectors(ties(seed, 8), np.ones(8, np.float32)) for seed in range(20)]
    index = TokenIndex(passages)
    index.device = device
    check(index, TokenIndex(passages), asked, 100)

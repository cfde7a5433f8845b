"""Count what one pass of a transformer over texts takes: alone, as triples, as pairs of a re-ranker."""

from __future__ import annotations

from typing import NamedTuple

from cort.training.settings import RERANKING_OBJECTIVES
from workflow.experiment.config import Config
from workflow.planning.facts import Model, Texts

KERNEL_POOLING, LONGEST_NGRAM = ("knrm", "conv_knrm"), 3
# Tokens, where a released model's own files say it.
LENGTH = 512
# Time of an operation on token vectors in that of a transformer's: what they are copied to and their maxima take most.
PRODUCT = 7
# Operations of a transformer in the time in which all kernels count one cosine of two words or n-grams.
POOLING = 15_000


class Pass(NamedTuple):
    """Tokens that a transformer reads, and the operations of one pass forward over them."""

    tokens: float
    flops: float


def is_late(settings: Config) -> bool:
    """Tell whether a re-ranker encodes queries and passages apart."""
    return settings.get("kind") == "late_interaction"


def read_by(settings: Config, model: Model) -> Model:
    """Take of a base model what a job has: its word vectors alone, if it pools kernels."""
    if not pools_kernels(settings):
        return model
    width = settings["dimension"] if settings["word_vectors"] == "new" else model.embedding
    return Model(width, 1, 0, model.vocabulary * width, model.vocabulary, width)


def pools_kernels(settings: Config) -> bool:
    """Tell whether a re-ranker compares word vectors."""
    return settings.get("kind") in KERNEL_POOLING


def encode_texts(model: Model, count: float, length: float) -> Pass:
    """Read so many texts of a length, each alone."""
    return Pass(count * length, model.flops(length) * count * length)


def encode_triple(settings: Config, model: Model, queries: Texts, passages: Texts) -> Pass:
    """Encode a query and two passages."""
    length = passages.tokens(settings.get("passage_length", LENGTH))
    tokens = queries.tokens(settings.get("query_length", LENGTH)) + 2 * length
    return Pass(tokens, model.flops(length) * tokens)


def score_pairs(
    settings: Config, model: Model, queries: Texts, passages: Texts, count: float, different: tuple[float, float]
) -> Pass:
    """Score pairs of so many different queries and passages."""
    query = queries.tokens(settings.get("query_length", LENGTH))
    if pools_kernels(settings):
        passage = passages.tokens(settings["max_length"], special=0)
        return _pooled(settings, model, count, query, passage)
    if not is_late(settings):
        return encode_texts(
            model, count, query + passages.tokens(max(settings.get("max_length", LENGTH) - query, 1), special=1)
        )
    query = settings["query_length"] if settings["fill_queries"] else query
    one, other = (
        encode_texts(model, different[0], query),
        encode_texts(model, different[1], passages.tokens(settings["max_length"])),
    )
    # The vectors are filled up to the longest text there may be.
    products = 2 * count * settings["query_length"] * settings["max_length"] * settings["dimension"]
    return Pass(one.tokens + other.tokens, one.flops + other.flops + PRODUCT * products)


def _pooled(settings: Config, model: Model, count: float, query: float, passage: float) -> Pass:
    """Compare the words of pairs, or the n-grams that a layer for each of their lengths makes of words."""
    tokens, layers = query + passage, LONGEST_NGRAM if settings["kind"] == "conv_knrm" else 0
    layers_flops = 2 * tokens * model.hidden * settings["filters"] * layers * (layers + 1) / 2
    width = settings["filters"] if layers else model.hidden
    pooling = max(layers, 1) ** 2 * query * passage * (2 * width + POOLING)
    return Pass(count * tokens, count * (layers_flops + pooling))


def score_example(settings: Config, model: Model, queries: Texts, passages: Texts) -> tuple[Pass, int]:
    """Score an example of a re-ranker's training: a pair, or a group; also how many pairs that is."""
    source, training = settings["pairs"], settings["training"]
    pairs = 1 + source["negatives"]
    own = pairs - source["random"]
    # Random negatives are the positives of the groups that follow: what is encoded together shares them.
    alone = score_pairs(settings, model, queries, passages, pairs, (1, own)).tokens
    update = training["batch_size"] * training["gradient_accumulation"]
    together = max(min(training["tokens_at_once"] / alone, update), 1)
    group = score_pairs(settings, model, queries, passages, pairs, (1, own + source["random"] / together))
    if RERANKING_OBJECTIVES[settings["loss"]].of_groups:
        return group, pairs
    return Pass(group.tokens / pairs, group.flops / pairs), 1

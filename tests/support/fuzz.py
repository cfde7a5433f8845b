"""Settings of tests that try many examples, always the same: a minute of them would be too long for `make test`.

For long runs, `FUZZ_EXAMPLES=100000 FUZZ_SEED=7 .venv/bin/python -m pytest -n 0` with the files of tests.
"""

import os
from dataclasses import dataclass

from hypothesis import HealthCheck, seed, settings

from cort.formats import embeddings, token_embeddings, tokens, vector_files

LONG = "FUZZ_EXAMPLES" in os.environ


def fuzzed(test):
    """Try few examples, always the same, or as many as the environment says."""
    few = settings(
        max_examples=int(os.environ.get("FUZZ_EXAMPLES", 25)),
        derandomize=not LONG,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    return few(seed(int(os.environ.get("FUZZ_SEED", "1")))(test) if LONG else test)


@dataclass(frozen=True)
class Part:
    text: str
    numbers: list[float]
    best: int | None


@dataclass(frozen=True)
class Whole:
    name: str
    good: bool
    parts: dict[str, Part]


def all_tokens(path):
    found = tokens.Tokens(path)
    return [found[row].tolist() for row in range(len(found))], found.ids.to_pylist()


def all_vectors(path):
    shards = embeddings.open_shards([path])
    return vector_files.all_ids(shards).to_pylist(), embeddings.all_vectors(shards).tolist()


TOKEN_ORIGIN = token_embeddings.Origin(dimension=2, passage_length=9, similarity="l2", model="m")


def all_token_vectors(path):
    shards = token_embeddings.open_token_shards([path], TOKEN_ORIGIN)
    found = [block.of(row).tolist() for shard in shards for block in shard.blocks() for row in range(len(block))]
    return vector_files.all_ids(shards).to_pylist(), found

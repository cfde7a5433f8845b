"""Vectors, and shards of them, for the tests of exact and graph search."""

import itertools

import numpy as np

from cort.formats.embeddings import write_shard

DIMENSION = 16


def random_unit(generator, rows, dimension):
    vectors = generator.standard_normal((rows, dimension)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def unit(seed, rows):
    return random_unit(np.random.default_rng(seed), rows, DIMENSION)


def shard(path, ids, vectors, model="m", storage="fp32"):
    blocks = [(ids[at : at + 50], vectors[at : at + 50]) for at in range(0, len(ids), 50)]
    write_shard(path, blocks, model=model, dimension=vectors.shape[1], count=len(ids), storage=storage)
    return str(path)


def shards(folder, name, ids, vectors, bounds=(), batch=64, model="m", storage="fp32"):
    """Write the rows between `bounds` as one shard each, in record batches of `batch` rows."""
    paths = []
    edges = [0, *bounds, len(ids)]
    for number, (start, end) in enumerate(itertools.pairwise(edges)):
        blocks = [
            (ids[at : min(at + batch, end)], vectors[at : min(at + batch, end)]) for at in range(start, end, batch)
        ]
        path = folder / f"{name}-{number}-{batch}.arrow"
        write_shard(path, blocks, model=model, dimension=vectors.shape[1], count=end - start, storage=storage)
        paths.append(str(path))
    return paths


def names(prefix, count):
    return [f"{prefix}{number}" for number in range(count)]


def write_world(folder):
    """Write 400 vectors, 100 of them twice, in two shards and in one, and 70 queries, more than a block; the two."""
    vectors = unit(1, 400)
    vectors[300:] = vectors[:100]
    passages = [shard(folder / "p1.arrow", names("d", 400)[:150], vectors[:150])]
    passages.append(shard(folder / "p2.arrow", names("d", 400)[150:], vectors[150:]))
    shard(folder / "all.arrow", names("d", 400), vectors)
    shard(folder / "q.arrow", names("q", 70), unit(2, 70))
    return passages


def copy(folder, target):
    """Copy an index without the record of its checksums."""
    target.mkdir()
    for path in (folder / "index").glob("[!.]*"):
        (target / path.name).write_bytes(path.read_bytes())
    return target

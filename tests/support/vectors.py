"""Vectors of texts and of tokens, and shards of them, for the tests of search."""

import itertools

import numpy as np
import pyarrow as pa

from cort.formats.shards import Origin, token_vector_batch, write_shard, write_token_shard

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


def cut(count, bounds, batch):
    """Yield the batches of each shard: slices of at most `batch` rows between `bounds`."""
    for start, end in itertools.pairwise([0, *bounds, count]):
        yield [slice(at, min(at + batch, end)) for at in range(start, end, batch)]


def shards(folder, name, ids, vectors, bounds=(), batch=64, model="m", storage="fp32"):
    """Write the rows between `bounds` as one shard each, in record batches of `batch` rows."""
    paths = []
    for number, parts in enumerate(cut(len(ids), bounds, batch)):
        paths.append(str(folder / f"{name}-{number}-{batch}.arrow"))
        blocks, count = [(ids[part], vectors[part]) for part in parts], sum(len(ids[part]) for part in parts)
        write_shard(paths[-1], blocks, model=model, dimension=vectors.shape[1], count=count, storage=storage)
    return paths


def token_shards(folder, ids, passages, bounds=(), batch=64, similarity="cosine", model="m"):
    """Write the token vectors of passages between `bounds` as one shard each, in record batches of `batch` passages."""
    folder.mkdir(exist_ok=True)
    origin, paths = Origin(passages[0].shape[1], 24, similarity, model), []
    for number, parts in enumerate(cut(len(ids), bounds, batch)):
        batches = [
            token_vector_batch(
                pa.array(ids[part]), np.concatenate(passages[part]), np.array(list(map(len, passages[part])))
            )
            for part in parts
        ]
        paths.append(folder / f"{number}-{batch}-{len(bounds)}.arrow")
        write_token_shard(paths[-1], batches, origin, sum(len(ids[part]) for part in parts))
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
    """Copy an index."""
    target.mkdir()
    for path in (folder / "index").glob("[!.]*"):
        (target / path.name).write_bytes(path.read_bytes())
    return target


def without_precision(path):
    """Make a file one of an earlier version, which did not say what precision its vectors were computed in."""
    table = pa.ipc.open_file(str(path)).read_all()
    metadata = {key: value for key, value in table.schema.metadata.items() if key != b"precision"}
    with pa.ipc.new_file(str(path), table.schema.with_metadata(metadata)) as file:
        file.write_table(table.replace_schema_metadata(metadata))

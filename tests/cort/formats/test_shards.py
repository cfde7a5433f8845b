import dataclasses
import shutil
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from cort.formats.shards import (
    TOKEN_VECTORS,
    Origin,
    Tokens,
    open_shards,
    token_vector_batch,
    write_shard,
    write_token_shard,
    write_tokens,
)
from cort.runtime.errors import InputError
from tests.support.common import refusal
from tests.support.vectors import without_precision

ORIGIN = Origin(dimension=4, passage_length=24, similarity="cosine", model="m")
COUNTS = [2, 0, 3, 1, 4]
TEXTS = [[5, 6, 7], [], [8], [1, 2], [3], [4, 4, 4, 4]]


def vectors(rows, dimension=4):
    return np.random.default_rng(0).standard_normal((rows, dimension)).astype(np.float32)


def write_embeddings(path, ids="abcde", matrix=None, *, count=None, model="m", blocks=None, **changes):
    matrix = vectors(len(ids)) if matrix is None else matrix
    blocks = blocks or [(list(ids[at : at + 3]), matrix[at : at + 3]) for at in range(0, len(ids), 3)]
    count = len(ids) if count is None else count
    write_shard(path, blocks, model=model, dimension=matrix.shape[1], count=count, **changes)
    return path


def write_token_vectors(path, ids="abcde", *, count=None, batch=2, blocks=None, **changes):
    counts, ends = COUNTS[: len(ids)], np.cumsum([0, *COUNTS])
    parts = [slice(at, min(at + batch, len(ids))) for at in range(0, len(ids), batch)]
    matrix = vectors(10).astype(np.float16)
    blocks = blocks or [
        token_vector_batch(
            pa.array(list(ids[part]), pa.string()), matrix[ends[part.start] : ends[part.stop]], counts[part]
        )
        for part in parts
    ]
    write_token_shard(path, blocks, ORIGIN, len(ids) if count is None else count, **changes)
    return path


def write_cache(path, ids=("b", "a", "10", "9", "c", "d"), *, blocks=None):
    parts = [slice(0, 2), slice(2, 3), slice(3, 3), slice(3, 6)]
    write_tokens(path, blocks or [(pa.array(ids[part], pa.string()), TEXTS[part]) for part in parts], "abc")
    return path


@dataclass(frozen=True)
class Kind:
    """A kind of file: how to write and open one, and what errors call it."""

    write: Any
    open: Any
    name: str


KINDS = {
    "embeddings": Kind(write_embeddings, lambda *paths: open_shards(paths), "a shard of embeddings"),
    "token vectors": Kind(
        write_token_vectors, lambda *paths: open_shards(paths, TOKEN_VECTORS), "a shard of token vectors"
    ),
    "tokens": Kind(write_cache, Tokens, "a token cache"),
}
each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
vector_kinds = pytest.mark.parametrize("kind", list(KINDS.values())[:2], ids=list(KINDS)[:2])


def write_arrow(path, table):
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)


@each_kind
def test_files_have_the_same_bytes_and_truncated_and_other_ones_are_refused(tmp_path, kind):
    path = tmp_path / "x.arrow"
    content = kind.write(path).read_bytes()
    assert kind.write(tmp_path / "again.arrow").read_bytes() == content
    for size in (0, 5, 200, len(content) // 2, len(content) - 4):
        path.write_bytes(content[:size])
        assert refusal(kind.open, path).startswith("found unreadable bytes (")
    write_arrow(path, pa.table({"id": ["a"], "score": [1.0]}))
    assert refusal(kind.open, path).startswith(f"found another Arrow file, expected {kind.name}")
    path.unlink()
    with pytest.raises(FileNotFoundError):
        kind.open(path)


@vector_kinds
@pytest.mark.parametrize("count", [4, 6])
def test_a_wrong_announced_count_leaves_nothing(tmp_path, kind, count):
    with pytest.raises(RuntimeError, match=f"5 rows written where {count} were announced"):
        kind.write(tmp_path / "x.arrow", count=count)
    assert list(tmp_path.iterdir()) == []


@vector_kinds
def test_shards_of_different_precisions_are_refused(tmp_path, kind):
    first, second, old = kind.write(tmp_path / "1"), kind.write(tmp_path / "2", "xy", precision="bf16"), tmp_path / "3"
    shutil.copyfile(first, old)
    without_precision(old)
    for single in (first, old):
        with pytest.raises(InputError, match=f"^{second}: found vectors in bf16, expected fp32 as in {single}"):
            kind.open(single, second)
    assert [shard.precision for shard in kind.open(kind.write(tmp_path / "4", "zu"), old)] == ["fp32", None]


@pytest.mark.parametrize(("storage", "kind"), [("fp32", np.float32), ("fp16", np.float16)])
def test_written_embeddings_are_read_without_a_copy(tmp_path, storage, kind):
    matrix = vectors(8)
    # Arrow ids and other memory layouts are accepted.
    blocks = [(pa.array(list("hgf")), np.asfortranarray(matrix[:3].astype(np.float64))), (list("edcba"), matrix[3:])]
    (shard,) = open_shards([write_embeddings(tmp_path / "x.arrow", "hgfedcba", blocks=blocks, storage=storage)])
    assert shard.origin == Origin(4, 1, "dot", "m")
    blocks = list(shard.blocks())
    assert [len(block) for block in blocks] == [3, 5]
    assert not any(block.flags.owndata or block.flags.writeable for block in blocks)
    assert np.concatenate(blocks).dtype == kind
    assert np.array_equal(np.concatenate(blocks), matrix.astype(kind))
    assert shard.table["id"].to_pylist() == list("hgfedcba")


def beside_first(path):
    return open_shards([path.with_name("first"), path])


def expecting(**changes):
    return lambda path: open_shards([path], TOKEN_VECTORS, **dataclasses.asdict(ORIGIN) | changes)


OTHERS = [
    (partial(write_embeddings, model="n"), beside_first, "embeddings of model n, expected model m"),
    (write_embeddings, lambda path: open_shards([path], model="n"), "embeddings of model m, expected model n"),
    (partial(write_embeddings, matrix=vectors(5, 5)), beside_first, "embeddings of dimension 5, expected dimension 4"),
    (partial(write_embeddings, storage="fp16"), beside_first, "embeddings of storage fp16, expected storage fp32"),
    (write_token_vectors, expecting(dimension=5), "token vectors of dimension 4, expected dimension 5"),
    (write_token_vectors, expecting(passage_length=180), "token vectors of passage length 24, expected passage"),
    (write_token_vectors, expecting(similarity="dot"), "token vectors of similarity cosine, expected similarity dot"),
    (write_token_vectors, expecting(model="n"), "token vectors of model m, expected model n"),
    (write_cache, lambda path: Tokens(path, "xyz"), "tokens of tokenizer abc, expected tokenizer xyz"),
]


@pytest.mark.parametrize(("write", "read", "found"), OTHERS)
def test_what_belongs_to_other_files_is_refused(tmp_path, write, read, found):
    write_embeddings(tmp_path / "first", "z")
    assert refusal(read, write(tmp_path / "x")).startswith(f"found {found}")


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_written_token_vectors_are_read_without_a_copy(tmp_path, batch):
    (shard,) = open_shards([write_token_vectors(tmp_path / "x.arrow", batch=batch)], TOKEN_VECTORS)
    assert shard.origin == ORIGIN
    parts = list(shard.blocks())
    assert not any(part.flags.owndata for part in parts)
    assert list(map(len, shard.table["vectors"].to_pylist())) == COUNTS
    assert np.array_equal(np.concatenate(parts), vectors(10).astype(np.float16))


def test_written_tokens_are_read_by_row(tmp_path):
    cache = Tokens(write_cache(tmp_path / "t.arrow"), "abc")
    assert cache.ids.to_pylist() == ["b", "a", "10", "9", "c", "d"]
    assert [cache[row].tolist() for row in range(len(cache))] == TEXTS
    assert cache.lengths.tolist() == [3, 0, 1, 2, 1, 4]
    assert cache[0].dtype == np.int32
    assert cache.tokenizer == "abc"
    for blocks in ([], [([], [])]):
        assert write_tokens(tmp_path / "t.arrow", blocks, "abc") == 0
        assert len(Tokens(tmp_path / "t.arrow")) == 0


def test_rows_of_ids_in_any_order_and_number(tmp_path):
    path = write_cache(tmp_path / "t.arrow")
    cache = Tokens(path)
    assert cache.rows_of(pa.array(["d", "b", "10", "b"]), "x").tolist() == [5, 0, 2, 0]
    assert cache.rows_of(pa.chunked_array([["9"], ["a", "c"]]), "x").tolist() == [3, 1, 4]
    assert cache.rows_of(pa.array([], pa.string()), "x").dtype == np.int64
    for ids in (pa.array(["b", "zzz", "a"]), pa.chunked_array([["b"], ["zzz"]])):
        with pytest.raises(InputError, match=rf"triples.parquet: found the unknown id 'zzz', expected ids of {path}"):
            cache.rows_of(ids, "triples.parquet")


def test_offsets_outside_the_file_are_refused(tmp_path):
    path = write_cache(tmp_path / "x.arrow")
    content, offsets = path.read_bytes(), np.array([0, 3], np.int32).tobytes()
    assert offsets in content
    path.write_bytes(content.replace(offsets, np.array([0, 1 << 30], np.int32).tobytes()))
    assert refusal(Tokens, path).startswith("found unreadable bytes (")


def test_texts_that_are_not_in_a_file_are_read_alike():
    tokens = Tokens.of_texts([np.array(text, dtype=np.int32) for text in TEXTS[:3]])
    assert [tokens[row].tolist() for row in range(len(tokens))] == TEXTS[:3]
    assert tokens.lengths.tolist() == [3, 0, 1]
    assert tokens.ids.to_pylist() == ["0", "1", "2"]
    assert len(Tokens.of_texts([])) == 0

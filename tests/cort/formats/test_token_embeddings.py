import dataclasses
import itertools

import numpy as np
import pyarrow as pa
import pytest

from cort.formats.token_embeddings import Origin, open_token_shards, to_batch, write_token_shard
from cort.system.errors import InputError

ORIGIN = Origin(dimension=4, passage_length=24, similarity="cosine", model="m")
COUNTS = [2, 0, 3, 1, 4]


def vectors(rows, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, 4)).astype(np.float16)


def write(path, ids="abcde", counts=COUNTS, *, origin=ORIGIN, batch=2, count=None):
    """Write passages with so many tokens each; the vectors."""
    matrix, ends = vectors(sum(counts)), np.cumsum([0, *counts])
    batches = [
        to_batch(
            pa.array(list(ids[at : at + batch]), pa.string()),
            matrix[ends[at] : ends[min(at + batch, len(ids))]],
            np.array(counts[at : at + batch]),
        )
        for at in range(0, len(ids), batch)
    ]
    write_token_shard(path, batches, origin, len(ids) if count is None else count)
    return matrix


def complaint(*paths, origin=ORIGIN):
    with pytest.raises(InputError) as error:
        open_token_shards(paths, origin)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_what_is_written_is_read_without_a_copy(tmp_path, batch):
    matrix = write(tmp_path / "x.arrow", batch=batch)
    (shard,) = open_token_shards([tmp_path / "x.arrow"], ORIGIN)
    assert shard.table["id"].to_pylist() == list("abcde")
    blocks = list(shard.blocks())
    assert sum(map(len, blocks)) == 5
    assert not any(block.vectors.flags.owndata for block in blocks)
    found = [block.of(number) for block in blocks for number in range(len(block))]
    assert [len(one) for one in found] == COUNTS
    assert np.array_equal(np.concatenate(found), matrix)


def test_the_same_vectors_make_the_same_bytes(tmp_path):
    for name in ("1.arrow", "2.arrow"):
        write(tmp_path / name)
    assert (tmp_path / "1.arrow").read_bytes() == (tmp_path / "2.arrow").read_bytes()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dimension": 5}, "dimension 4, expected dimension 5"),
        ({"passage_length": 180}, "passage length 24, expected passage length 180"),
        ({"similarity": "l2"}, "similarity cosine, expected similarity l2"),
        ({"model": "n"}, "model m, expected model n"),
    ],
)
def test_vectors_of_another_origin_are_refused(tmp_path, change, words):
    path = tmp_path / "x.arrow"
    write(path)
    line = complaint(path, origin=dataclasses.replace(ORIGIN, **change))
    assert line == f"{path}: found token vectors of {words}; delete the file and encode again"


def test_damaged_and_other_files_are_refused(tmp_path):
    path = tmp_path / "x.arrow"
    write(path)
    whole = path.read_bytes()
    for size in (0, 9, len(whole) // 2, len(whole) - 4):
        path.write_bytes(whole[:size])
        assert complaint(path).startswith(f"{path}: found unreadable bytes (")
    table = pa.table({"id": ["a"], "score": [1.0]})
    with pa.ipc.new_file(str(path), table.schema) as file:
        file.write_table(table)
    assert complaint(path).startswith(f"{path}: found another Arrow file, expected token vectors; name the file that")
    write(path, ids="ab\u200bde")
    assert complaint(path).startswith(f"{path}: found an id that is empty or has whitespace")


def test_a_file_that_disagrees_with_itself_is_refused(tmp_path):
    write(tmp_path / "x.arrow")
    table = pa.ipc.open_file(str(tmp_path / "x.arrow")).read_all()
    for number, (key, value) in enumerate(itertools.product([b"count", b"dimension"], [b"6"])):
        path = tmp_path / f"{number}.arrow"
        wrong = table.replace_schema_metadata(table.schema.metadata | {key: value})
        with pa.ipc.new_file(str(path), wrong.schema) as file:
            file.write_table(wrong)
        assert complaint(path).startswith(f"{path}: found 5 passages of list<")


def test_an_id_twice_is_refused_across_shards(tmp_path):
    write(tmp_path / "1.arrow")
    write(tmp_path / "2.arrow", ids="fghia")
    assert "found an id twice, expected each id once" in complaint(tmp_path / "1.arrow", tmp_path / "2.arrow")


@pytest.mark.parametrize("count", [4, 6])
def test_a_wrong_announced_count_leaves_nothing(tmp_path, count):
    with pytest.raises(RuntimeError, match=f"5 passages written where {count} were announced"):
        write(tmp_path / "x.arrow", count=count)
    assert list(tmp_path.iterdir()) == []

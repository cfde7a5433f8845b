import numpy as np
import pyarrow as pa
import pytest

from cort.formats.embeddings import all_vectors, open_shards, write_shard
from cort.formats.vector_files import all_ids
from cort.system.errors import InputError


def vectors(rows, dimension=4, seed=0):
    return np.random.default_rng(seed).standard_normal((rows, dimension)).astype(np.float32)


def write(path, ids, matrix, *, model="m", storage="fp32", batch=3, count=None):
    blocks = [(ids[at : at + batch], matrix[at : at + batch]) for at in range(0, len(ids), batch)]
    count = len(ids) if count is None else count
    write_shard(path, blocks, model=model, dimension=matrix.shape[1], count=count, storage=storage)
    return path


def complaint(*paths, model=None):
    with pytest.raises(InputError) as error:
        open_shards(paths, model=model)
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(("storage", "kind"), [("fp32", np.float32), ("fp16", np.float16)])
def test_what_is_written_is_read(tmp_path, storage, kind):
    matrix = vectors(8)
    (shard,) = open_shards([write(tmp_path / "x.arrow", list("hgfedcba"), matrix, storage=storage)])
    assert (shard.model, shard.dimension, shard.storage) == ("m", 4, storage)
    blocks = list(shard.blocks())
    assert [len(ids) for ids, _ in blocks] == [3, 3, 2]
    assert {block.dtype for _, block in blocks} == {np.dtype(kind)}
    assert np.array_equal(np.concatenate([block for _, block in blocks]), matrix.astype(kind))
    assert all_ids([shard]).to_pylist() == list("hgfedcba")


def test_vectors_are_not_copied(tmp_path):
    (shard,) = open_shards([write(tmp_path / "x.arrow", ["a", "b"], vectors(2))])
    ((_, block),) = shard.blocks()
    assert not block.flags.owndata
    assert not block.flags.writeable


def test_shards_join_in_the_order_given(tmp_path):
    matrix = vectors(7)
    paths = [
        write(tmp_path / "2.arrow", ["c", "a", "x", "y"], matrix[3:]),
        write(tmp_path / "1.arrow", ["b", "e", "f"], matrix[:3]),
    ]
    shards = open_shards(paths, model="m")
    assert all_ids(shards).to_pylist() == ["c", "a", "x", "y", "b", "e", "f"]
    assert np.array_equal(all_vectors(shards), np.concatenate([matrix[3:], matrix[:3]]))
    assert all_vectors(shards).dtype == np.float32


def test_half_precision_vectors_join_as_single(tmp_path):
    matrix = vectors(5)
    shards = open_shards([write(tmp_path / "x.arrow", list("abcde"), matrix, storage="fp16")])
    assert np.array_equal(all_vectors(shards), matrix.astype(np.float16).astype(np.float32))


def test_an_empty_shard(tmp_path):
    shards = open_shards([write(tmp_path / "x.arrow", [], vectors(0))])
    assert all_ids(shards).to_pylist() == []
    assert all_vectors(shards).shape == (0, 4)


def test_the_same_vectors_make_the_same_bytes(tmp_path):
    first = write(tmp_path / "1.arrow", list("abc"), vectors(3)).read_bytes()
    assert write(tmp_path / "2.arrow", list("abc"), vectors(3)).read_bytes() == first


def test_arrow_ids_and_other_memory_layouts_are_taken(tmp_path):
    matrix = np.asfortranarray(vectors(3).astype(np.float64))
    write_shard(tmp_path / "x.arrow", [(pa.array(list("abc")), matrix)], model="m", dimension=4, count=3)
    assert np.array_equal(all_vectors(open_shards([tmp_path / "x.arrow"])), vectors(3))


@pytest.mark.parametrize("count", [2, 4])
def test_a_wrong_announced_count_leaves_nothing(tmp_path, count):
    with pytest.raises(RuntimeError, match=f"3 vectors written where {count} were announced"):
        write(tmp_path / "x.arrow", list("abc"), vectors(3), count=count)
    assert list(tmp_path.iterdir()) == []


def test_another_model_is_refused(tmp_path):
    first = write(tmp_path / "1.arrow", ["a"], vectors(1))
    second = write(tmp_path / "2.arrow", ["b"], vectors(1), model="n")
    expected = f"{second}: found embeddings of model n, expected model m; delete the file and encode again"
    assert complaint(first, second) == expected
    assert complaint(second, model="m") == expected


def test_another_dimension_or_storage_is_refused(tmp_path):
    first = write(tmp_path / "1.arrow", ["a"], vectors(1))
    wide = write(tmp_path / "2.arrow", ["b"], vectors(1, 5))
    half = write(tmp_path / "3.arrow", ["b"], vectors(1), storage="fp16")
    assert complaint(first, wide).startswith(f"{wide}: found 5 dimensions in fp32, expected 4 in fp32 as in {first}")
    assert complaint(first, half).startswith(f"{half}: found 4 dimensions in fp16, expected 4 in fp32 as in {first}")


def test_an_id_twice_is_refused_within_and_across_shards(tmp_path):
    first = write(tmp_path / "1.arrow", ["a", "b"], vectors(2))
    second = write(tmp_path / "2.arrow", ["c", "a"], vectors(2))
    within = write(tmp_path / "3.arrow", ["c", "c"], vectors(2))
    assert complaint(first, second).startswith(f"{first}, {second}: found an id twice, expected each id once")
    assert complaint(within).startswith(f"{within}: found an id twice")


@pytest.mark.parametrize("bad", ["", "a b", "a\u200b"])
def test_ids_that_no_run_can_have_are_refused(tmp_path, bad):
    path = tmp_path / "e.arrow"
    write_shard(path, [(["a", bad], np.eye(2))], model="m", dimension=2, count=2, storage="fp32")
    with pytest.raises(InputError, match=f"{path}: found an id that is empty or has whitespace"):
        open_shards([path])


def test_damaged_files_are_refused(tmp_path):
    whole = write(tmp_path / "x.arrow", list("abcdef"), vectors(6)).read_bytes()
    for size in (0, 5, len(whole) // 2, len(whole) - 4):
        damaged = tmp_path / f"{size}.arrow"
        damaged.write_bytes(whole[:size])
        assert complaint(damaged).startswith(f"{damaged}: found unreadable bytes (")


def test_other_files_are_refused(tmp_path):
    table = pa.table({"id": ["a"], "score": [1.0]})
    with pa.ipc.new_file(str(tmp_path / "x.arrow"), table.schema) as file:
        file.write_table(table)
    assert complaint(tmp_path / "x.arrow").startswith(f"{tmp_path}/x.arrow: found another Arrow file, expected an")


def test_a_file_that_disagrees_with_itself_is_refused(tmp_path):
    kind = pa.list_(pa.float32(), 2)
    for count, dimension in ((3, 2), (2, 3)):
        metadata = {"model": "m", "count": str(count), "dimension": str(dimension), "storage": "fp32"}
        schema = pa.schema([("id", pa.string()), ("embedding", kind)], metadata=metadata)
        values = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(4, dtype=np.float32)), type=kind)
        with pa.ipc.new_file(str(tmp_path / "x.arrow"), schema) as file:
            file.write_batch(pa.record_batch([pa.array(["a", "b"]), values], schema=schema))
        assert f"expected {count} of {dimension} x fp32" in complaint(tmp_path / "x.arrow")


def test_a_missing_file_is_the_operating_systems_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        open_shards([tmp_path / "absent.arrow"])

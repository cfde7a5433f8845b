import importlib
import itertools

import numpy as np
import pyarrow as pa
import pytest

from cort.formats import checkpoints
from cort.formats.checkpoints import FinishedBlocks
from cort.models import shards as module_of_shards
from cort.models import transformer
from cort.models.shards import blocks_of
from cort.runtime.errors import InputError
from tests.support.common import logged


def test_shards_are_even_and_blocks_have_about_so_many_tokens():
    for rows, most in itertools.product((0, 1, 9, 10, 11, 95, 100), (1, 7, 40, 1_000)):
        lengths = np.random.default_rng(rows).integers(1, 9, rows)
        whole = blocks_of(lengths, "1-of-1", 10, most)
        assert [row for block in whole for row in range(*block)] == list(range(rows))
        assert all(end - start == 1 or lengths[start:end].sum() < 2 * most + 9 for start, end in whole)
        assert {start for start in range(0, rows, 10)} <= {start for start, _ in whole}
        for shards in (1, 2, 3, 7, 20):
            parts = [blocks_of(lengths, f"{number}-of-{shards}", 10, most) for number in range(1, shards + 1)]
            assert [block for part in parts for block in part] == whole
            sizes = [-(-sum(end - start for start, end in part) // 10) for part in parts]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shard", ["0-of-3", "4-of-3", "1of3", "1-of-3-of-5"])
def test_a_wrong_shard_is_refused(shard):
    with pytest.raises(InputError, match=r"^--shard: found '.*', expected i-of-n"):
        blocks_of(np.ones(10, np.int64), shard, 4, 100)


def square(number):
    return pa.record_batch({"value": [number * number]})


def values(folder, name="one", numbers=range(5), make=square, every=0.0):
    blocks = FinishedBlocks(folder, lambda: name, every)
    made = blocks.each([(number, number) for number in numbers], make)
    return [batch["value"][0].as_py() for batch in blocks.keeping(made)]


def refuse(number):
    raise AssertionError(f"block {number} was made again")


@pytest.mark.parametrize(("every", "kept"), [(0, 3), (30, 0)])
def test_a_killed_process_loses_only_what_was_made_after_the_last_checkpoint(tmp_path, every, kept):
    blocks = FinishedBlocks(tmp_path / "kept", lambda: "one", every)
    passed_on = blocks.keeping(blocks.each([(number, number) for number in range(5)], square))
    # It is killed while it works with the third one.
    assert [next(passed_on)["value"][0].as_py() for _ in range(3)] == [0, 1, 4]
    assert values(tmp_path / "kept", numbers=range(kept), make=refuse) == [0, 1, 4][:kept]
    assert values(tmp_path / "kept") == [0, 1, 4, 9, 16]


def interrupt(number):
    if number == 3:
        raise KeyboardInterrupt
    return square(number)


def test_blocks_become_one_file_at_intervals_and_when_they_are_interrupted(tmp_path, monkeypatch):
    values(tmp_path / "kept", every=3600)
    assert not (tmp_path / "kept").exists()
    with pytest.raises(KeyboardInterrupt):
        values(tmp_path / "kept", every=3600, make=interrupt)
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["blocks-0-2.arrow"]
    monkeypatch.setattr(checkpoints, "MOST_BYTES", 2 * square(0).nbytes)
    assert values(tmp_path / "kept", every=3600, numbers=range(8)) == [0, 1, 4, 9, 16, 25, 36, 49]
    names = ["blocks-0-2.arrow", "blocks-3-4.arrow", "blocks-5-6.arrow"]
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == names
    assert values(tmp_path / "kept", numbers=range(7), make=refuse) == [0, 1, 4, 9, 16, 25, 36]


def test_shards_that_divide_a_file_of_blocks_use_and_remove_their_own(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        values(tmp_path / "kept", every=3600, make=interrupt)
    shards = [0, 1], [2, 3, 4]
    for numbers in shards:
        found = values(tmp_path / "kept", numbers=numbers, make=lambda n: square(n) if n > 2 else refuse(n))
        assert found == [n * n for n in numbers]
    for numbers, left in zip(shards, (["blocks-3-3.arrow", "blocks-4-4.arrow"], []), strict=True):
        FinishedBlocks(tmp_path / "kept", lambda: "one", 0).remove(numbers)
        assert sorted(path.name for path in tmp_path.glob("kept/*")) == left
    assert not (tmp_path / "kept").exists()


def test_without_a_folder_nothing_is_kept_and_no_identity_computed():
    blocks = FinishedBlocks(None, lambda: pytest.fail("asked"))
    assert [batch["value"][0].as_py() for batch in blocks.keeping(blocks.each([(0, 3)], square))] == [9]
    blocks.remove([0])


def test_blocks_of_another_computation_and_damaged_ones_are_recomputed(tmp_path, caplog):
    values(tmp_path / "kept")
    path = tmp_path / "kept" / "blocks-2-2.arrow"
    for damaged in (path.read_bytes()[:-9], b"x" * path.stat().st_size):
        path.write_bytes(damaged)
        assert values(tmp_path / "kept") == [0, 1, 4, 9, 16]
        assert logged(caplog, "WARNING")[0].startswith(f"{path}: found unreadable bytes")
    assert values(tmp_path / "kept", name="two", make=lambda number: square(number + 1)) == [1, 4, 9, 16, 25]
    assert "found blocks of other inputs or options" in caplog.text
    assert values(tmp_path / "kept", name="two", make=refuse) == [1, 4, 9, 16, 25]


EACH = FinishedBlocks.each


def note_blocks(monkeypatch, limit=1_000):
    """Return a list of the numbers of blocks that are made from now on; after so many, the stage is interrupted."""
    made = []

    def each(self, blocks, make, *rest):
        def noted(block):
            if len(made) == limit:
                raise KeyboardInterrupt
            made.append(block[0])
            return make(block[1])

        return EACH(self, [(number, (number, block)) for number, block in blocks], noted, *rest)

    monkeypatch.setattr(FinishedBlocks, "each", each)
    return made


def stage_arguments(stage, tmp_path, caches, make_encoder, make_reranker, t5=None):
    if stage == "expand predict":
        settings = ["--queries", 2, "--query-length", 4, "--top-k", 3]
        return ["predict", "--model", t5, "--tokens", caches["passages"], *settings]
    if stage == "encode tokens":
        model = make_reranker(kind="late_interaction", dimension=5)
        return ["tokens", "--model", model, "--tokens", caches["passages"]]
    if stage == "encode":
        return ["vectors", "--model", make_encoder(), "--tokens", caches["passages"], "--kind", "passage"]
    candidates = tmp_path / "candidates.trec"
    pairs = itertools.product(range(10), range(20))
    candidates.write_text("".join(f"q{q} Q0 d{d} {d + 1} {1 / (d + 1)} x\n" for q, d in pairs), "utf-8")
    files = ["--queries", caches["queries.train"], "--passages", caches["passages"]]
    return ["--model", make_reranker(), "--candidates", candidates, "--depths", 1000, *files]


@pytest.mark.parametrize("stage", ["encode", "encode tokens", "expand predict", "score"])
def test_an_interrupted_stage_computes_no_finished_block_again(
    stage, tmp_path, caches, make_encoder, make_reranker, t5, monkeypatch
):
    stage_module = importlib.import_module(f"cort.{stage.split()[0]}")
    for module in (module_of_shards, transformer):
        monkeypatch.setattr(module, "TOKEN_BUDGETS", {"cpu": 200})
    monkeypatch.setattr(module_of_shards, "BATCHES_PER_BLOCK", 1)
    arguments = stage_arguments(stage, tmp_path, caches, make_encoder, make_reranker, t5)

    def run(name, limit=1_000):
        made = note_blocks(monkeypatch, limit)
        words = map(str, [*arguments, "--checkpoints", tmp_path / "kept", "--output", tmp_path / name])
        return stage_module.main(list(words)), made

    status, blocks = run("complete")
    assert status == 0
    assert len(blocks) > 4
    assert run("resumed", 3) == (130, blocks[:3])
    assert run("resumed", 1) == (130, blocks[3:4])
    (tmp_path / "kept" / f"blocks-{blocks[3]}-{blocks[3]}.arrow").write_bytes(b"cut off")
    assert run("resumed") == (0, blocks[3:])
    assert (tmp_path / "resumed").read_bytes() == (tmp_path / "complete").read_bytes()
    assert not (tmp_path / "kept").exists()

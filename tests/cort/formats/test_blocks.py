import importlib
import itertools
import json
import os
import signal
import subprocess
import sys
import textwrap
import time

import pyarrow as pa
import pytest

from cort.formats import blocks, tables
from cort.formats.blocks import FinishedBlocks, shard_blocks
from cort.formats.tokens import Tokens
from cort.system.errors import InputError


@pytest.mark.parametrize("rows", [0, 1, 9, 10, 11, 95, 100])
@pytest.mark.parametrize("shards", [1, 2, 3, 7, 20])
def test_shards_are_whole_blocks_in_order_and_even(rows, shards):
    parts = [shard_blocks(rows, f"{number}-of-{shards}", 10) for number in range(1, shards + 1)]
    blocks = [block for part in parts for block in part]
    assert blocks == [(start, min(start + 10, rows)) for start in range(0, rows, 10)]
    sizes = [len(part) for part in parts]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("shard", ["0-of-3", "4-of-3", "1-of-0", "1of3", "a-of-b", "1-of-3-of-5", "-1-of-3", ""])
def test_a_wrong_shard_is_refused(shard):
    with pytest.raises(InputError, match=r"^--shard: found '.*', expected i-of-n with 1 <= i <= n; fix it$"):
        shard_blocks(10, shard, 4)


def square(number):
    return pa.record_batch({"value": [number * number]})


def values(folder, name="one", numbers=range(5), make=square):
    blocks = FinishedBlocks(folder, lambda: name)
    return [batch["value"][0].as_py() for batch in blocks.each(((number, number) for number in numbers), make)]


def failing_at(limit):
    def make(number):
        if number >= limit:
            raise RuntimeError("power cut")
        return square(number)

    return make


def refuse(number):
    raise AssertionError(f"block {number} was made again")


def test_what_was_finished_is_not_made_again(tmp_path):
    with pytest.raises(RuntimeError):
        values(tmp_path / "kept", make=failing_at(3))
    assert values(tmp_path / "kept", numbers=range(3), make=refuse) == [0, 1, 4]
    assert values(tmp_path / "kept") == [0, 1, 4, 9, 16]


def test_without_a_folder_nothing_is_kept_and_nobody_asks_who_it_is():
    blocks = FinishedBlocks(None, lambda: pytest.fail("asked"))
    assert [batch["value"][0].as_py() for batch in blocks.each([(0, 3)], square)] == [9]
    blocks.remove([0])


def test_blocks_of_another_computation_are_made_again(tmp_path, caplog):
    values(tmp_path / "kept")
    assert values(tmp_path / "kept", name="two", make=lambda number: square(number + 1)) == [1, 4, 9, 16, 25]
    assert "found a block of other inputs or options; it is made again" in caplog.text
    assert values(tmp_path / "kept", name="two", make=refuse) == [1, 4, 9, 16, 25]


@pytest.mark.parametrize("damage", [lambda data: data[:-9], lambda data: b"", lambda data: b"x" * len(data)])
def test_damaged_blocks_are_made_again(tmp_path, damage, caplog):
    values(tmp_path / "kept")
    path = tmp_path / "kept" / "block-2.arrow"
    path.write_bytes(damage(path.read_bytes()))
    assert values(tmp_path / "kept") == [0, 1, 4, 9, 16]
    assert "block-2.arrow: found unreadable bytes" in caplog.text


def test_only_named_blocks_are_removed_and_the_folder_after_the_last(tmp_path):
    values(tmp_path / "kept")
    blocks = FinishedBlocks(tmp_path / "kept", lambda: "one")
    blocks.remove([0, 1, 2, 7])
    assert sorted(path.name for path in (tmp_path / "kept").iterdir()) == ["block-3.arrow", "block-4.arrow"]
    blocks.remove([3, 4])
    assert not (tmp_path / "kept").exists()


def test_what_a_killed_writer_left_goes_with_the_last_block(tmp_path):
    values(tmp_path / "kept")
    program = "import os, sys; from cort.system.files import atomic_file\nwith atomic_file(sys.argv[1]): os._exit(9)"
    killed = subprocess.run([sys.executable, "-c", program, tmp_path / "kept" / "block-1.arrow"], check=False)
    assert killed.returncode == 9
    assert len(list((tmp_path / "kept").iterdir())) == 6
    FinishedBlocks(tmp_path / "kept", lambda: "one").remove(range(5))
    assert not (tmp_path / "kept").exists()


PROGRAM = """
    import sys, time
    import numpy as np
    from cort import encode, score
    from cort.formats import blocks
    encode.BLOCK = score.BLOCK = 16
    made, keep = [], blocks.FinishedBlocks._keep
    def slowly(self, number, batch):
        made.append(number)
        keep(self, number, batch)
        time.sleep(float(sys.argv[2]))
    blocks.FinishedBlocks._keep = slowly
    status = {"encode": encode, "score": score}[sys.argv[1]].main(sys.argv[3:])
    print(made, file=sys.stderr)
    sys.exit(status)
"""


def start(stage, pause, arguments):
    command = [sys.executable, "-c", textwrap.dedent(PROGRAM), stage, str(pause), *map(str, arguments)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def made_by(process):
    _, said = process.communicate()
    assert process.returncode == 0, said
    return json.loads(said.splitlines()[-1])


def stage_arguments(stage, tmp_path, caches, make_encoder, make_reranker, t5=None):
    if stage == "expand":
        return ["--model", t5, "--tokens", caches["passages"], "--queries", 2, "--query-length", 4, "--top-k", 3]
    if stage == "encode tokens":
        model = make_reranker(kind="late_interaction", dimension=5)
        return ["tokens", "--model", model, "--tokens", caches["passages"]]
    if stage == "score_expansions":
        ids = Tokens(caches["passages"]).ids.to_pylist()
        predicted = pa.table([ids, [[name, f"{name} x"] for name in ids]], schema=tables.EXPANSIONS)
        tables.write_table(tmp_path / "predicted", predicted)
        files = ["--tokens", caches["passages"], "--expansions", tmp_path / "predicted"]
        return ["--model", make_reranker(), *files]
    if stage == "encode":
        return ["vectors", "--model", make_encoder(), "--tokens", caches["passages"], "--kind", "passage"]
    candidates = tmp_path / "candidates.trec"
    pairs = itertools.product(range(10), range(20))
    candidates.write_text("".join(f"q{q} Q0 d{d} {d + 1} {1 / (d + 1)} x\n" for q, d in pairs), "utf-8")
    files = ["--queries", caches["queries.train"], "--passages", caches["passages"]]
    return ["--model", make_reranker(), "--candidates", candidates, *files]


@pytest.mark.parametrize("stage", ["encode", "score"])
def test_a_killed_stage_goes_on_after_its_last_block(stage, tmp_path, caches, make_encoder, make_reranker):
    arguments = stage_arguments(stage, tmp_path, caches, make_encoder, make_reranker)
    whole = start(stage, 0, [*arguments, "--output", tmp_path / "whole"])
    numbers = made_by(whole)
    assert numbers == list(range(len(numbers)))
    kept = tmp_path / "kept"
    arguments += ["--checkpoints", kept, "--output", tmp_path / "again"]
    first = start(stage, 60, arguments)
    while not list(kept.glob("block-0.arrow")):
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.05)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    assert not (tmp_path / "again").exists()
    assert made_by(start(stage, 0, arguments)) == numbers[1:]
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not kept.exists()


@pytest.mark.parametrize("stage", ["encode", "encode tokens", "expand", "score", "score_expansions"])
def test_a_stage_that_ended_in_a_block_computes_no_batch_again(
    stage, tmp_path, caches, make_encoder, make_reranker, t5, monkeypatch
):
    import cort.models.transformer

    module, budgets, made = importlib.import_module(f"cort.{stage.split()[0]}"), {"cpu": 200}, []
    monkeypatch.setattr(cort.models.transformer, "TOKEN_BUDGETS", budgets)
    if stage == "expand":
        monkeypatch.setattr(module, "TOKEN_BUDGETS", budgets)
    arguments = stage_arguments(stage, tmp_path, caches, make_encoder, make_reranker, t5)
    keep = FinishedBlocks.keep_part

    def run(name, limit=1_000):
        def counting(self, read):
            made.append(read().shape)
            keep(self, read)
            if len(made) == limit:
                raise KeyboardInterrupt

        made.clear()
        monkeypatch.setattr(FinishedBlocks, "keep_part", counting)
        words = map(str, [*arguments, "--checkpoints", tmp_path / "kept", "--output", tmp_path / name])
        return module.main(list(words)), list(made)

    status, whole = run("whole")
    assert status == 0
    assert len(whole) > 4
    # After a minute of work on a slow machine, here after every batch but the last.
    monkeypatch.setattr(blocks, "KEEP_EVERY", 0)
    assert run("again", 3) == (130, whole[:3])
    (tmp_path / "kept" / "block-0.2.arrow").write_bytes(b"cut off")
    assert run("again") == (0, whole[2:])
    assert (tmp_path / "again").read_bytes() == (tmp_path / "whole").read_bytes()
    assert not (tmp_path / "kept").exists()

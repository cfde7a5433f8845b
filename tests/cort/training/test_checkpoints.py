import os
import random
import shutil
import struct
import threading
import time

import pytest
import torch
from safetensors.torch import load_file, save_file

from cort.models.transformer import identity
from cort.training.checkpoints import Checkpoint, Checkpoints, DamagedError, read_checkpoint
from tests.support.common import ROOT, die_while_writing, logged


def make(step=3, value=0.5):
    tensors = {
        "model.weight": torch.full((3, 2), value),
        "model.half": torch.arange(5, dtype=torch.bfloat16),
        "model.positions": torch.arange(4),
        "optimizer.0.step": torch.tensor(float(step)),
        "random.0.torch": torch.arange(7, dtype=torch.uint8),
        "none": torch.zeros(0, 4),
        "turned": torch.arange(6.0).reshape(2, 3).T,
        "z.flags": torch.tensor([True, False]),
    }
    return Checkpoint(step, tensors, {"progress": {"losses": [0.1, 1e-300]}, "scaler": None})


def equal(one, other):
    assert (one.step, one.state) == (other.step, other.state)
    assert set(one.tensors) == set(other.tensors)
    for name, tensor in one.tensors.items():
        assert tensor.dtype == other.tensors[name].dtype
        assert torch.equal(tensor, other.tensors[name])
    return True


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "checkpoints"


@pytest.fixture
def checkpoints(folder):
    return Checkpoints(folder, lambda: "this", 1.0)


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def file_names(*steps):
    return sorted(f"checkpoint-{step}.safetensors" for step in steps)


def test_what_was_written_is_read(checkpoints):
    assert checkpoints.newest() is None
    path = checkpoints.write(make())
    assert path == checkpoints.folder / "checkpoint-3.safetensors"
    assert equal(checkpoints.newest(), make())


def test_others_can_read_the_file(checkpoints):
    tensors = load_file(checkpoints.write(make()))
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in make().tensors.items())


def test_what_is_written_does_not_depend_on_the_order_of_tensors(checkpoints, folder):
    one = checkpoints.write(make()).read_bytes()
    turned = Checkpoint(3, dict(reversed(make().tensors.items())), make().state)
    assert checkpoints.write(turned).read_bytes() == one


def test_the_last_two_are_kept_and_the_newest_is_taken(checkpoints, folder):
    for step in (2, 9, 10, 11):
        checkpoints.write(make(step))
    # By number, not by name.
    assert names(folder) == file_names(10, 11)
    assert checkpoints.newest().step == 11


def test_the_end_removes_checkpoints_only(checkpoints, folder):
    checkpoints.write(make())
    die_while_writing(checkpoints.path(9))
    assert len(names(folder)) == 2
    (folder / "notes.txt").write_text("mine")
    checkpoints.remove()
    assert names(folder) == ["notes.txt"]
    (folder / "notes.txt").unlink()
    checkpoints.remove()
    assert not folder.exists()
    checkpoints.remove()


def test_what_a_process_left_that_died_on_another_host_goes_after_an_hour(checkpoints, folder):
    folder.mkdir()
    for name, age in (("old", 3700), ("new", 3500)):
        path = folder / f".checkpoint-{name}.tmp"
        path.mkdir()
        (path / "checkpoint").write_text("half")
        os.utime(path, (time.time() - age,) * 2)
    checkpoints.write(make())
    assert names(folder) == [".checkpoint-new.tmp", "checkpoint-3.safetensors"]


def truncate(content):
    return content[: len(content) // 2]


def one_byte_short(content):
    return content[:-1]


def nothing(content):
    return b""


def another_file(content):
    return b"PK\x03\x04" + content[4:]


def flip_last_value(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def flip_first_value(content):
    start = 8 + struct.unpack("<Q", content[:8])[0]
    return content[:start] + bytes([content[start] ^ 128]) + content[start + 1 :]


def flip_state(content):
    return content.replace(b"1e-300", b"1e-301")


def flip_identity(content):
    return content.replace(b"this", b"thus")


def flip_name(content):
    return content.replace(b"model.half", b"model.halt")


def swap_values(content):
    """Two tensors of one type and shape, each under the other's name."""
    return content.replace(b"model.weight", b"x").replace(b"turned", b"model.weight").replace(b'"x"', b'"turned"')


DAMAGES = [
    truncate,
    one_byte_short,
    nothing,
    another_file,
    flip_last_value,
    flip_first_value,
    flip_state,
    flip_identity,
    flip_name,
    swap_values,
]


@pytest.mark.parametrize("damage", DAMAGES)
def test_of_a_damaged_checkpoint_the_one_before_is_taken(checkpoints, folder, caplog, damage):
    checkpoints.write(make(4))
    path = checkpoints.write(make(5))
    content = path.read_bytes()
    assert damage(content) != content
    path.write_bytes(damage(content))
    assert equal(checkpoints.newest(), make(4))
    (line,) = logged(caplog, "WARNING")
    assert line.startswith(f"{path} is no whole checkpoint (")
    assert line.endswith("): the one before is used")
    assert "\n" not in line
    assert checkpoints.remaining() == 4
    # It goes when the next one is there, so that two whole ones are kept.
    checkpoints.write(make(6))
    assert names(folder) == file_names(4, 6)


def test_no_flipped_bit_passes(checkpoints):
    """Wherever it is, reading fails, or what is read is what was written: padding means nothing."""
    path = checkpoints.write(make())
    content = path.read_bytes()
    failed = 0
    generator = random.Random(1)  # noqa: S311
    positions = generator.sample(range(len(content)), 400)
    for position in positions:
        changed = bytearray(content)
        changed[position] ^= 1 << generator.randrange(8)
        path.write_bytes(changed)
        try:
            name, checkpoint = read_checkpoint(path)
        except DamagedError:
            failed += 1
        else:
            assert name == "this"
            assert equal(checkpoint, make())
    assert failed > 0.9 * len(positions)


def test_of_all_damaged_checkpoints_none_is_taken(checkpoints, folder, caplog):
    for step in (4, 5):
        checkpoints.write(make(step)).write_bytes(b"")
    assert checkpoints.newest() is None
    lines = logged(caplog, "WARNING")
    assert len(lines) == 3
    assert lines[-1] == f"{folder} holds no whole checkpoint of this training: it starts anew"
    assert checkpoints.remaining() is None
    checkpoints.write(make(1))
    assert names(folder) == file_names(1)


def test_a_safetensors_file_that_is_no_checkpoint_is_not_taken(checkpoints, folder, caplog):
    folder.mkdir()
    for step, metadata in ((1, None), (2, {"state": "{}", "sha256": "0"})):
        save_file({"a": torch.zeros(2)}, folder / f"checkpoint-{step}.safetensors", metadata)
    assert checkpoints.newest() is None
    reasons = [line.split("(")[1].split(")")[0] for line in logged(caplog, "WARNING")[:2]]
    assert reasons == ["its checksum is wrong", "no checkpoint at all"]


def test_a_folder_in_place_of_a_checkpoint_is_not_taken(checkpoints, folder, caplog):
    (folder / "checkpoint-5.safetensors").mkdir(parents=True)
    checkpoints.write(make(4))
    assert checkpoints.newest().step == 4
    assert len(logged(caplog, "WARNING")) == 1


def test_another_trainings_checkpoints_are_ignored_and_give_way(checkpoints, folder, caplog):
    caplog.set_level("INFO")
    other = Checkpoints(folder, lambda: "another", 1.0)
    for step in (7, 8):
        other.write(make(step))
    assert checkpoints.newest() is None
    lines = logged(caplog)
    assert lines == [f"{other.path(step)} belongs to another training: ignored" for step in (8, 7)]
    checkpoints.write(make(1))
    assert names(folder) == file_names(1)
    assert checkpoints.newest().step == 1


def test_a_folder_that_cannot_be_made_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "checkpoints", lambda: "this", 1.0).newest()


def test_a_full_disk_leaves_the_checkpoints_before(tmp_path, mount_disk):
    small_disk = mount_disk(tmp_path / "disk", kilobytes=64)
    checkpoints = Checkpoints(small_disk / "c", lambda: "this", 1.0)
    checkpoints.write(make(1))
    large = Checkpoint(2, {"model.weight": torch.zeros(1 << 16)}, {})
    with pytest.raises(OSError, match="No space left on device"):
        checkpoints.write(large)
    assert names(small_disk / "c") == file_names(1)
    assert equal(checkpoints.newest(), make(1))


# Several processes in one folder


def test_a_slower_process_of_the_same_training_keeps_its_own_and_the_newest(checkpoints, folder):
    for step in (90, 100):
        checkpoints.write(make(step))
    slower = Checkpoints(folder, lambda: "this", 1.0)
    slower.write(make(5))
    assert names(folder) == file_names(5, 90, 100)
    slower.write(make(6))
    assert names(folder) == file_names(6, 90, 100)
    assert slower.newest().step == 100


def test_the_end_of_another_process_does_not_break_a_write(checkpoints, folder, monkeypatch):
    """It removes the folder at the worst moments: once before the file is opened, once before it is renamed."""
    other = Checkpoints(folder, lambda: "this", 1.0)
    moments = iter(["before opening", "before renaming"])
    import cort.training.checkpoints

    write = cort.training.checkpoints.write_checkpoint
    mkdir = cort.training.checkpoints.Path.mkdir

    def interrupted_mkdir(path, *args, **options):
        mkdir(path, *args, **options)
        if path == folder and next(moments, None) == "before opening":
            other.remove()

    def interrupted_write(handle, *args):
        write(handle, *args)
        if next(moments, None) == "before renaming":
            other.remove()
            assert not folder.exists()

    monkeypatch.setattr(cort.training.checkpoints.Path, "mkdir", interrupted_mkdir)
    monkeypatch.setattr(cort.training.checkpoints, "write_checkpoint", interrupted_write)
    checkpoints.write(make(4))
    assert next(moments, "both came") == "both came"
    assert names(folder) == file_names(4)


def test_writing_reading_and_removing_at_once(folder):
    """Nobody fails, and what is read is whole; with threads, whose file operations interleave as processes' do."""
    stop, errors, read = time.monotonic() + 3, [], []

    def work(action):
        checkpoints = Checkpoints(folder, lambda: "this", 1.0)
        step = 0
        while time.monotonic() < stop:
            step += 1
            try:
                action(checkpoints, step)
            except FileNotFoundError:
                pass  # removed five times in a row: training goes on
            except Exception as error:
                errors.append(error)
                raise

    def look(checkpoints, step):
        found = checkpoints.newest()
        if found:
            read.append(equal(found, make(found.step)))

    def end(checkpoints, step):
        time.sleep(0.02)
        checkpoints.remove()

    actions = [lambda checkpoints, step: checkpoints.write(make(step)), look, end]
    threads = [threading.Thread(target=work, args=(action,)) for action in actions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(read) > 5


# What a training is


@pytest.fixture
def inputs(tmp_path):
    model = tmp_path / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "triples.parquet").write_bytes(b"triples")
    (tmp_path / "passages.arrow").write_bytes(b"passages")
    return tmp_path


def name_of(inputs, **options):
    files = [str(inputs / name) for name in ("triples.parquet", "passages.arrow")]
    return identity("cort.train", {"seed": 1, "margin": 0.1} | options, files, str(inputs / "model"))


def test_a_training_is_named_by_options_contents_and_model(inputs):
    name = name_of(inputs)
    moved = inputs.parent / f"{inputs.name}-moved"
    shutil.copytree(inputs, moved)
    assert name_of(moved) == name
    assert name_of(inputs, seed=2) != name
    assert name_of(inputs, margin=0.1 + 1e-12) != name
    for changed in ("triples.parquet", "passages.arrow", "model/config.json", "model/model.safetensors"):
        before = (inputs / changed).read_bytes()
        (inputs / changed).write_bytes(before + b" ")
        assert name_of(inputs) != name
        (inputs / changed).write_bytes(before)
    assert name_of(inputs) == name


def test_the_program_belongs_to_the_training(inputs, monkeypatch, tmp_path):
    from cort.system import program

    name = name_of(inputs)
    for module, counts in (("training/losses", True), ("train", True), ("formats/tables", True), ("report", False)):
        root = tmp_path / module
        shutil.copytree(ROOT / "cort", root / "cort", ignore=shutil.ignore_patterns("__pycache__"))
        with open(root / "cort" / f"{module}.py", "a", encoding="utf-8") as file:
            file.write("\nANOTHER = 1\n")
        monkeypatch.setattr(program, "ROOT", root)
        assert (name_of(inputs) != name) == counts

import random
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from cort.models.layout import identity
from cort.training.checkpoints import Checkpoint, Checkpoints, DamagedError, read_checkpoint
from tests.support.common import die_while_writing, logged


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
    tensors["tied"] = tensors["model.weight"]
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


def test_what_was_written_is_read_also_by_other_software(checkpoints):
    assert checkpoints.newest() is None
    path = checkpoints.write(make())
    assert path == checkpoints.folder / "checkpoint-3.safetensors"
    assert equal(checkpoints.newest(), make())
    tensors = load_file(path)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in make().tensors.items())
    # The order of the tensors does not matter.
    content = path.read_bytes()
    reversed_tensors = dict(reversed(make().tensors.items()))
    assert checkpoints.write(Checkpoint(3, reversed_tensors, make().state)).read_bytes() == content


def test_the_last_two_are_kept_and_the_newest_is_taken(checkpoints, folder):
    for step in (2, 9, 10, 11):
        checkpoints.write(make(step))
    # By number, not by name.
    assert names(folder) == file_names(10, 11)
    assert checkpoints.newest().step == 11
    # A slower process of the same training keeps its own and the newest.
    slower = Checkpoints(folder, lambda: "this", 1.0)
    for step in (5, 6):
        slower.write(make(step))
        assert names(folder) == file_names(step, 10, 11)
    assert slower.newest().step == 11


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


def swap_values(content):
    """Two tensors of one type and shape, each under the other's name."""
    return content.replace(b"model.weight", b"x").replace(b"turned", b"model.weight").replace(b'"x"', b'"turned"')


DAMAGES = {
    "half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "empty": lambda content: b"",
    "another format": lambda content: b"PK\x03\x04" + content[4:],
    "another state": lambda content: content.replace(b"1e-300", b"1e-301"),
    "swapped values": swap_values,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_instead_of_a_damaged_checkpoint_the_previous_one_is_used(checkpoints, folder, caplog, damage):
    checkpoints.write(make(4))
    path = checkpoints.write(make(5))
    content = path.read_bytes()
    assert damage(content) != content
    path.write_bytes(damage(content))
    assert equal(checkpoints.newest(), make(4))
    (line,) = logged(caplog, "WARNING")
    assert line.startswith(f"{path} is not a complete checkpoint (")
    assert "\n" not in line
    assert checkpoints.remaining() == 4
    # It is removed by the next write, so that two complete ones are kept.
    checkpoints.write(make(6))
    assert names(folder) == file_names(4, 6)


def test_no_flipped_bit_passes(checkpoints):
    """Either reading fails, or the content is the same: padding has no meaning."""
    path = checkpoints.write(make())
    content = path.read_bytes()
    failed = 0
    generator = random.Random(1)  # noqa: S311
    positions = generator.sample(range(len(content)), 200)
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


def test_without_a_complete_checkpoint_it_starts_from_the_beginning(checkpoints, folder, caplog):
    folder.mkdir()
    for step, metadata in ((1, None), (2, {"checkpoint": "0 {}"})):
        save_file({"a": torch.zeros(2)}, checkpoints.path(step), metadata)
    checkpoints.path(3).mkdir()
    assert checkpoints.newest() is None
    assert checkpoints.remaining() is None
    of_folder, *lines, last = logged(caplog, "WARNING")
    assert of_folder.startswith(f"{checkpoints.path(3)} is not a complete checkpoint (")
    assert [line.split("(")[1].split(")")[0] for line in lines] == ["its checksum is wrong", "not a checkpoint"]
    assert last == f"{folder} has no complete checkpoint of this training: it starts from the beginning"
    checkpoints.path(3).rmdir()
    checkpoints.write(make(1))
    assert names(folder) == file_names(1)


def test_checkpoints_of_another_training_are_ignored_and_replaced(checkpoints, folder, caplog):
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


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
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


@pytest.fixture
def inputs(tmp_path):
    (tmp_path / "model").mkdir()
    for name in ("model/config.json", "model/model.safetensors", "triples.parquet", "passages.arrow"):
        (tmp_path / name).write_bytes(name.encode())
    return tmp_path


def name_of(inputs, module="cort.train", **options):
    files = [str(inputs / name) for name in ("triples.parquet", "passages.arrow")]
    return identity(module, {"seed": 1, "margin": 0.1} | options, files, str(inputs / "model"))


def test_a_training_is_named_by_program_options_contents_and_model(inputs):
    name = name_of(inputs)
    moved = inputs.parent / f"{inputs.name}-moved"
    shutil.copytree(inputs, moved)
    assert name_of(moved) == name
    assert name_of(inputs, "cort.train_reranker") != name
    assert name_of(inputs, seed=2) != name
    assert name_of(inputs, margin=0.1 + 1e-12) != name
    for changed in ("triples.parquet", "passages.arrow", "model/config.json", "model/model.safetensors"):
        before = (inputs / changed).read_bytes()
        (inputs / changed).write_bytes(before + b" ")
        assert name_of(inputs) != name
        (inputs / changed).write_bytes(before)
    assert name_of(inputs) == name

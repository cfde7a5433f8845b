import shutil

import pytest
import torch
from safetensors.torch import load_file

from cort.models.layout import identity
from cort.training.checkpoints import Checkpoint, Checkpoints
from tests.support.common import logged


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
    return Checkpoint(tensors, {"progress": {"step": step, "losses": [0.1, 1e-300]}, "scaler": None})


def equal(one, other):
    assert one.state == other.state
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


def test_what_was_written_is_read_also_by_other_software(checkpoints, folder):
    assert checkpoints.newest() is None
    checkpoints.write(make())
    assert names(folder) == ["checkpoint.safetensors"]
    assert equal(checkpoints.newest(), make())
    tensors = load_file(checkpoints.path)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in make().tensors.items())
    # The order of the tensors does not matter.
    content = checkpoints.path.read_bytes()
    checkpoints.write(make()._replace(tensors=dict(reversed(make().tensors.items()))))
    assert checkpoints.path.read_bytes() == content


def test_the_end_removes_the_checkpoint_only(checkpoints, folder):
    checkpoints.write(make())
    (folder / "notes.txt").write_text("mine")
    checkpoints.remove()
    assert names(folder) == ["notes.txt"]
    (folder / "notes.txt").unlink()
    checkpoints.remove()
    assert not folder.exists()
    checkpoints.remove()


DAMAGES = {
    "half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "empty": lambda content: b"",
    "another format": lambda content: b"PK\x03\x04" + content[4:],
    "a bit": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
    "a digit of the state": lambda content: content.replace(b"0.1", b"0.2"),
    "no state": lambda content: content.replace(b'"checkpoint"', b'"checkpaint"'),
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_without_a_complete_checkpoint_it_starts_from_the_beginning(checkpoints, caplog, damage):
    checkpoints.write(make(5))
    content = checkpoints.path.read_bytes()
    assert damage(content) != content
    checkpoints.path.write_bytes(damage(content))
    assert checkpoints.newest() is None
    (line,) = logged(caplog, "WARNING")
    assert line.startswith(f"{checkpoints.path} is not a complete checkpoint (")
    assert line.endswith("): it starts from the beginning")
    assert "\n" not in line
    checkpoints.write(make(6))
    assert equal(checkpoints.newest(), make(6))


def test_the_checkpoint_of_another_training_is_ignored_and_replaced(checkpoints, folder, caplog):
    caplog.set_level("INFO")
    Checkpoints(folder, lambda: "another", 1.0).write(make(7))
    assert checkpoints.newest() is None
    assert logged(caplog) == [f"{checkpoints.path} belongs to another training: ignored"]
    checkpoints.write(make(1))
    assert names(folder) == ["checkpoint.safetensors"]
    assert equal(checkpoints.newest(), make(1))


def test_a_folder_that_cannot_be_made_is_an_error_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        Checkpoints(tmp_path / "file" / "checkpoints", lambda: "this", 1.0).newest()


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, mount_disk):
    small_disk = mount_disk(tmp_path / "disk", kilobytes=64)
    checkpoints = Checkpoints(small_disk / "c", lambda: "this", 1.0)
    checkpoints.write(make(1))
    large = Checkpoint({"model.weight": torch.zeros(1 << 16)}, {})
    with pytest.raises(OSError, match="No space left on device"):
        checkpoints.write(large)
    assert names(small_disk / "c") == ["checkpoint.safetensors"]
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

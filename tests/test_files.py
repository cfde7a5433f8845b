import os

import pytest

from cort.files import atomic_file, atomic_folder, write_text


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_appears_only_when_whole(tmp_path):
    path = tmp_path / "deep" / "er" / "a.txt"
    with atomic_file(path) as temporary:
        temporary.write_text("new")
        assert not path.exists()
        assert temporary.parent == path.parent
    assert path.read_text() == "new"
    assert names(path.parent) == ["a.txt"]


def test_a_failure_leaves_no_file(tmp_path):
    with pytest.raises(RuntimeError, match="half"), atomic_file(tmp_path / "a.txt") as temporary:
        temporary.write_text("half")
        raise RuntimeError("half")
    assert names(tmp_path) == []


def test_a_failure_leaves_the_old_file_as_it_was(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), atomic_file(path) as temporary:
        temporary.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_success_replaces_the_old_file(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old and longer")
    before = path.open()
    write_text(path, "né\n")
    assert path.read_bytes() == b"n\xc3\xa9\n"
    # Who has the old file open still reads the whole of it.
    assert before.read() == "old and longer"


def test_forgetting_to_write_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "a.txt"):
        pass
    assert names(tmp_path) == []


def test_a_folder_appears_only_when_whole(tmp_path):
    path = tmp_path / "deep" / "model"
    with atomic_folder(path) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a.txt").write_text("new")
        assert not path.exists()
    assert (path / "sub" / "a.txt").read_text() == "new"
    assert names(path.parent) == ["model"]


def test_a_failure_leaves_no_folder_or_the_old_one(tmp_path):
    path = tmp_path / "model"

    def fail():
        with atomic_folder(path) as temporary:
            (temporary / "a.txt").write_text("half")
            raise RuntimeError("half")

    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert names(tmp_path) == []
    path.mkdir()
    (path / "old.txt").write_text("old")
    with pytest.raises(RuntimeError, match="half"):
        fail()
    assert names(tmp_path) == ["model"]
    assert names(path) == ["old.txt"]


def test_success_replaces_the_whole_old_folder(tmp_path):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old.txt").write_text("old")
    with atomic_folder(path) as temporary:
        (temporary / "new.txt").write_text("new")
    assert names(path) == ["new.txt"]
    assert names(tmp_path) == ["model"]


def test_leftovers_of_a_killed_process_of_the_same_number_are_no_part_of_the_result(tmp_path):
    leftover = tmp_path / f".model.{os.getpid()}.tmp"
    leftover.mkdir()
    (leftover / "half.txt").write_text("half")
    with atomic_folder(tmp_path / "model") as temporary:
        (temporary / "new.txt").write_text("new")
    assert names(tmp_path / "model") == ["new.txt"]

import errno
import os
import random
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from cort.runtime import files
from cort.runtime.files import atomic_file, atomic_folder, write_text
from tests.support.processes import Python

KINDS = ("atomic_file", "atomic_folder", "temporary_folder")
# A writer: its letter, the target, how often. Each writer's content consists of its letter.
FILE_WRITER = """
import sys
from cort.runtime.files import atomic_file

letter, target, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(times):
    with atomic_file(target) as temporary, open(temporary, "w") as handle:
        for _ in range(50):
            handle.write(letter * 2000)
            handle.flush()
"""
FOLDER_WRITER = """
import sys
from cort.runtime.files import atomic_folder

letter, target, times = sys.argv[1], sys.argv[2], int(sys.argv[3])
for _ in range(times):
    with atomic_folder(target) as temporary:
        (temporary / "deep").mkdir()
        for name in ("a", "b", "c"):
            (temporary / name).write_text(letter * 20_000)
        (temporary / "deep" / letter).write_text(letter)
"""
# A writer that reports when it is half done, and waits for a line before it goes on.
SLOW_WRITER = """
import sys
from cort.runtime import files

with getattr(files, sys.argv[1])(sys.argv[2]) as temporary:
    (temporary / "part" if temporary.is_dir() else temporary).write_text("half")
    print("half", flush=True)
    sys.stdin.readline()
"""


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def part_of(path):
    """What `write` writes: the file itself, or a file in the folder."""
    return path / "deep" / "part" if path.is_dir() else path


def content(path):
    return part_of(path).read_text() if part_of(path).is_file() else None


def write(kind, target, text="new", error=None):
    before = content(target)
    with getattr(files, kind)(target) as temporary:
        if temporary.is_dir():
            (temporary / "deep").mkdir()
        part_of(temporary).write_text(text)
        assert content(target) == before
        assert temporary.stat().st_dev == target.parent.stat().st_dev
        if error is not None:
            raise error


@pytest.mark.parametrize(("kind", "parts"), [("atomic_file", []), ("atomic_folder", ["deep", "part"])])
def test_all_is_on_disk_before_it_is_in_place(kind, parts, tmp_path, monkeypatch):
    target, synced = tmp_path / "target", []

    def note(number):
        synced.append((Path(os.readlink(f"/proc/self/fd/{number}")).name, target.exists()))

    monkeypatch.setattr(os, "fsync", note)
    write(kind, target)
    assert synced == [*((name, False) for name in (*parts, "target")), (tmp_path.name, True)]


@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_target_appears_only_when_complete_and_replaces_the_old_one(kind, tmp_path):
    target = tmp_path / "deep" / "er" / "target"
    for text in ("old", "new"):
        write(kind, target, text)
        assert content(target) == text
        assert names(target.parent) == ["target"]


@pytest.mark.parametrize("error", [RuntimeError("half"), KeyboardInterrupt()])
@pytest.mark.parametrize("kind", KINDS[:2])
def test_a_failure_leaves_nothing_or_the_old_target(kind, tmp_path, error):
    target = tmp_path / "target"
    with pytest.raises(type(error)):
        write(kind, target, "half", error)
    assert names(tmp_path) == []
    write(kind, target, "old")
    with pytest.raises(type(error)):
        write(kind, target, "half", error)
    assert content(target) == "old"
    assert names(tmp_path) == ["target"]


def test_readers_of_a_replaced_file_still_read_all_of_it(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("old and longer")
    with path.open() as before:
        write_text(path, "n\u00e9\n")
        assert path.read_bytes() == b"n\xc3\xa9\n"
        assert before.read() == "old and longer"


def test_a_new_folder_replaces_a_file(tmp_path):
    (tmp_path / "model").write_text("old")
    with atomic_folder(tmp_path / "model"):
        pass
    assert (tmp_path / "model").is_dir()
    assert names(tmp_path) == ["model"]


def test_a_file_that_was_never_written_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "a.txt"):
        pass
    assert names(tmp_path) == []


def test_a_target_with_the_longest_name_is_written(tmp_path):
    path = tmp_path / ("é" * 127)
    write_text(path, "new")
    assert path.read_text() == "new"


def test_an_interrupted_replacement_leaves_the_old_folder(tmp_path, monkeypatch):
    path = tmp_path / "model"
    path.mkdir()
    (path / "old.txt").write_text("old")
    rename, calls = os.rename, []

    def interrupted(source, target):
        calls.append(target)
        # New to target fails, target goes aside, and then somebody presses Ctrl-C.
        if len(calls) == 3:
            raise KeyboardInterrupt
        rename(source, target)

    monkeypatch.setattr(os, "rename", interrupted)
    with pytest.raises(KeyboardInterrupt), atomic_folder(path) as temporary:
        (temporary / "new.txt").write_text("new")
    assert len(calls) == 4
    assert names(path) == ["old.txt"]
    assert names(tmp_path) == ["model"]


def test_errors_of_a_file_name_the_target(tmp_path):
    with pytest.raises(OSError, match=r"a\.txt") as caught, atomic_file(tmp_path / "a.txt"):
        # As raised when writing to an open file: without a name.
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(tmp_path / "a.txt"))
    with pytest.raises(OSError, match=r"'/proc/cort\.txt'$"), atomic_file("/proc/cort.txt"):
        pass


def test_a_full_disk_is_recognised_behind_the_exception_of_a_library(tmp_path, mount_disk):
    disk = mount_disk(tmp_path / "disk", kilobytes=64)
    with pytest.raises(OSError, match="No space left on device") as caught, atomic_file(disk / "a") as temporary:
        save_file({"tensor": torch.zeros(1 << 16)}, temporary)
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, str(disk / "a"))
    assert list(disk.iterdir()) == []
    # Some libraries do not mention it.
    with pytest.raises(OSError, match="No space left on device"), atomic_file(disk / "a") as temporary:
        with suppress(OSError):
            temporary.write_bytes(bytes(1 << 16))
        raise RuntimeError("cannot write")
    with pytest.raises(RuntimeError, match="cannot write"), atomic_file(tmp_path / "a"):
        raise RuntimeError("cannot write")


def read_folder(path):
    """Contents of a folder as it was when opened; None if it is not there, or was replaced while we read."""
    contents = []
    try:
        top = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        for folder, _, inside, descriptor in os.fwalk(".", dir_fd=top, onerror=raise_it):
            for name in inside:
                handle = os.open(name, os.O_RDONLY, dir_fd=descriptor)
                with open(handle) as text:
                    contents.append((os.path.join(folder, name), text.read()))
        replaced = not os.path.samestat(os.fstat(top), os.stat(path))
    except FileNotFoundError:
        return None
    finally:
        os.close(top)
    return None if replaced else sorted(contents)


def raise_it(error):
    raise error


def folder_of(letter):
    return [*((f"./{name}", letter * 20_000) for name in "abc"), (f"./deep/{letter}", letter)]


def watch(writers, read):
    """Everything distinct that is read while writers live."""
    seen = []
    while any(writer.poll() is None for writer in writers):
        if (state := read()) not in seen:
            seen.append(state)
    assert [writer.wait() for writer in writers] == [0] * len(writers)
    return [*seen, read()]


def test_readers_see_one_complete_file_or_folder_while_many_write_it(tmp_path):
    path, folder = tmp_path / "a.txt", tmp_path / "model"
    write_text(path, "z" * 100_000)
    files = watch([Python("-c", FILE_WRITER, letter, path, 30) for letter in "uvwxyz"], path.read_text)
    assert {(len(text), len(set(text))) for text in files} == {(100_000, 1)}
    folders = watch(
        [Python("-c", FOLDER_WRITER, letter, folder, 30) for letter in "uvwxyz"], lambda: read_folder(folder)
    )
    complete = [folder_of(letter) for letter in "uvwxyz"]
    # The folder may be gone for a moment.
    assert [state for state in folders if state is not None and state not in complete] == []
    assert folders[-1] is not None
    assert min(len(files), len(folders)) > 2
    assert names(tmp_path) == ["a.txt", "model"]


def halfway(kind, target):
    """A process that is in the middle of writing."""
    writer = Python("-c", SLOW_WRITER, kind, target, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert writer.stdout.readline() == "half\n"
    return writer


@pytest.mark.parametrize("kind", KINDS)
def test_writers_of_one_target_do_not_disturb_each_other(kind, tmp_path):
    target = tmp_path / "target"
    with halfway(kind, target) as writer:
        write(kind, target, "old")
        writer.communicate("go on\n", timeout=60)
        assert writer.returncode == 0
    if kind == "temporary_folder":
        assert names(tmp_path) == []
    else:
        # The slower writer finished last.
        assert names(tmp_path) == ["target"]
        assert (target / "part" if target.is_dir() else target).read_text() == "half"


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_writer_leaves_a_temporary_name(kind, tmp_path):
    with halfway(kind, tmp_path / "target"):
        pass
    assert [*tmp_path.iterdir()] == [*tmp_path.glob(files.UNFINISHED)] != []


@pytest.mark.parametrize(("code", "kind"), [(FILE_WRITER, "atomic_file"), (FOLDER_WRITER, "atomic_folder")])
def test_writers_killed_at_any_moment_harm_nobody(code, kind, tmp_path):
    target = tmp_path / "target"
    generator = random.Random(3)  # noqa: S311
    steady = Python("-c", code, "s", target, 100)
    for letter in "klmnop":
        with Python("-c", code, letter, target, 10_000):
            time.sleep(generator.uniform(0.1, 0.4))
    assert steady.wait(timeout=120) == 0
    write(kind, target)
    assert {*tmp_path.iterdir()} - {*tmp_path.glob(files.UNFINISHED)} == {target}
    assert content(target) == "new"

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from cort.runtime import checksums, cli
from cort.runtime.checksums import record_of, verify
from cort.runtime.errors import InputError
from cort.runtime.files import atomic_folder, record_checksums, write_text
from cort.runtime.options import optional, required


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a stage that copies a file to a file, to a folder of files, and to an atomic folder."""

    source: str = required("FILE")
    named: tuple[str, ...] = optional((), metavar="NAME=FILE")
    tag: str = optional("")
    output: str | None = optional(None, metavar="FILE")
    output_folder: str | None = optional(None, metavar="FOLDER")
    output_model: str | None = optional(None, metavar="FOLDER")


def stage(options):
    text = Path(options.source).read_text()
    if options.output:
        write_text(options.output, text)
    if options.output_folder:
        write_text(Path(options.output_folder) / "part" / "a.txt", text)
    if options.output_model:
        with atomic_folder(options.output_model) as folder:
            (folder / "deep").mkdir()
            (folder / "deep" / "a.txt").write_text(text)


main = cli.main_of(Options, stage)


@pytest.fixture
def made(tmp_path):
    """A file, a file in a folder, and an atomic folder that a stage made."""
    write_text(tmp_path / "source.txt", "some text")
    paths = SimpleNamespace(file=tmp_path / "out.txt", folder=tmp_path / "report", model=tmp_path / "model")
    options = ["--output", paths.file, "--output-folder", paths.folder, "--output-model", paths.model]
    assert main(["--source", str(tmp_path / "source.txt"), *map(str, options)]) == 0
    paths.part, paths.inside = paths.folder / "part" / "a.txt", paths.model / "deep" / "a.txt"
    return paths


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


DAMAGE = {
    "flip": (flip, "found changed content (checksum "),
    "cut": (lambda path: os.truncate(path, 3), "found 3 bytes, expected 9 bytes"),
    "swap": (lambda path: path.write_text("some test"), "found changed content (checksum "),
    # Of an atomic folder alone.
    "gone": (lambda path: path.unlink(), "found no such file, expected 9 bytes"),
}


CASES = [(kind, damage) for kind in ("file", "part", "inside") for damage in DAMAGE]


@pytest.mark.parametrize(("kind", "damage"), [case for case in CASES if case[1] != "gone" or case[0] == "inside"])
def test_damaged_files_are_refused_and_accepted_without_their_record(made, complaint, kind, damage):
    path = getattr(made, kind)
    change, words = DAMAGE[damage]
    change(path)
    named = made.model if kind == "inside" else path
    for options in (["--source", named], ["--source", __file__, "--named", f"name={__file__}", f"name={named}"]):
        line = complaint(main, options)
        assert line.startswith(f"{path}: {words}")
    record = made.model / ".sum" if kind == "inside" else path.with_name(f".{path.name}.sum")
    assert f"(or {record} alone, to accept it as it is)" in line
    record.unlink()
    verify([path, made.model])


def test_intact_files_are_accepted_also_when_copied_elsewhere(made, tmp_path):
    shutil.copytree(made.folder, tmp_path / "copy")
    shutil.copytree(made.model, tmp_path / "model2")
    verify([made.file, made.folder, made.model, made.inside, tmp_path / "copy", "no such"])
    flip(tmp_path / "copy" / "part" / "a.txt")
    flip(tmp_path / "model2" / "deep" / "a.txt")
    for path in (tmp_path / "copy" / "part" / "a.txt", tmp_path / "model2"):
        with pytest.raises(InputError, match="changed content"):
            verify([path])


def test_a_text_that_is_no_place_may_be_equal_to_one(made, monkeypatch):
    monkeypatch.chdir(made.folder.parent)
    flip(made.part)
    assert main(["--source", "source.txt", "--tag", "report", "--output", "other.txt"]) == 0


def test_a_file_written_again_gets_a_new_record_or_none_if_no_stage_wrote_it_or_it_failed(made, tmp_path):
    def fail(options):
        write_text(options.output, "new")
        raise InputError("it fails")

    def written_by(stage, status):
        assert cli.main_of(Options, stage)(["--source", str(source), "--output", str(made.file)]) == status
        verify([made.file])
        return record_of(made.file).exists()

    source = tmp_path / "source.txt"
    write_text(source, "another text")
    assert written_by(stage, 0)
    assert not written_by(fail, 1)
    assert written_by(stage, 0)
    write_text(made.file, "a third")
    verify([made.file])
    assert not record_of(made.file).exists()


def test_only_outputs_get_records(made, tmp_path):
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.sum")}
    assert names == {".out.txt.sum", "report/part/.a.txt.sum", "model/.sum"}


def test_a_file_replaced_while_it_was_read_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("mine")
    describe = checksums.describe

    def slow(paths, folder):
        record = describe(paths, folder)
        if path.read_text() == "mine":
            write_text(path, "theirs")
        return record

    monkeypatch.setattr(sys.modules["cort.runtime.files"], "describe", slow)
    record_checksums([str(path)])
    verify([path])


@pytest.mark.parametrize("text", ["", "{", "[]", "7", '{"a.txt": 1}', '{"a.txt": ["x", 1]}', "[" * 100_000, "\ud800"])
def test_a_damaged_record_is_one_line(tmp_path, text):
    (tmp_path / "a.txt").write_text("a")
    record_of(tmp_path / "a.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
    with pytest.raises(InputError, match=r"\.a\.txt\.sum: found a damaged record, .*; delete it"):
        verify([tmp_path / "a.txt"])


@pytest.mark.parametrize("name", ["caf\udce9.txt", "\u00e9" * 127])
def test_names_that_are_not_text_or_as_long_as_can_be_have_a_record(tmp_path, name):
    path = tmp_path / name
    path.write_text("a")
    record_checksums([str(path)])
    path.write_text("b")
    with pytest.raises(InputError, match="changed content"):
        verify([path])


def test_of_a_large_file_only_the_size_is_checked(tmp_path, monkeypatch):
    monkeypatch.setattr(checksums, "LIMIT", 10)
    path = tmp_path / "a.txt"
    path.write_text("x" * 11)
    record_checksums([str(path)])
    path.write_text("y" * 11)
    verify([path])
    path.write_text("y" * 12)
    with pytest.raises(InputError, match="found 12 bytes, expected 11 bytes"):
        verify([path])

"""Folders of files: documents, and a line and a count for whatever gives none."""

import bz2
import json
import os
import re
import shutil
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.runtime.errors import InputError
from cort.sources.documents import Section
from cort.sources.folder import LARGEST, Skips, iter_documents, list_files
from tests.support.common import logged, refusal, write_file
from tests.support.errors import line_of
from tests.support.office import docx_of, epub_of, pptx_of, xlsx_of
from tests.support.pdf import pdf_of

LATIN = "Café à la crème, naïve.".encode("latin-1")


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "docs"
    path.mkdir()
    return path


def write_all(folder, files):
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_file(folder / name, data)


def read(folder, **options):
    """Documents by id, and counts of what was skipped."""
    skips = Skips()
    documents = list(iter_documents(folder, skips, **options))
    found = {document.doc_id: document for document in documents}
    assert len(found) == len(documents)
    return found, dict(skips.counts)


def test_each_type_of_file(folder):
    text = "Some text."
    files = {
        "b/guide.md": f"# Guide\n\n## Use\n\n{text}\n",
        "b/page.HTML": f"<title>Guide</title><h2>Use</h2><p>{text}</p>",
        "notes.txt": f"{text}\n",
        "a/index.rst": f"Guide\n=====\n\nUse\n---\n\n{text}\n",
        "paper.pdf": pdf_of("Some text."),
        "rows.csv": f"id,text\n7,{text}\n",
        "rows.jsonl": json.dumps({"id": "x y", "text": text}) + "\n",
        "program.py": "x = 1",
        "LICENSE": text,
    }
    write_all(folder, files)
    found, counts = read(folder, fields={"id": "id", "text": "text"})
    assert list(found) == [
        *("a/index.rst", "b/guide.md", "b/page.HTML", "notes.txt", "paper.pdf", "rows.csv/7", "rows.jsonl/x%20y")
    ]
    for name, document in found.items():
        is_outlined = name.startswith(("a/", "b/"))
        assert document.title == ("Guide" if is_outlined else "")
        assert document.sections == (Section(("Use",) if is_outlined else (), (text,)),)
    assert counts == {"other files (.py)": 1, "other files (no suffix)": 1}


def test_documents_in_hidden_folders_are_counted(folder):
    hidden = {".git/HEAD": "x", ".git/a/b.md": "Text.", "a/.notes/c.txt": "Text.", "a/.d.html": "Text.", ".env": "x"}
    write_all(folder, hidden | {"a/good.md": "Text."})
    found, counts = read(folder)
    assert ([*found], counts) == (["a/good.md"], {"hidden files": 3})


def test_processes_change_nothing_but_the_time(folder, caplog):
    for number in range(300):
        write_all(folder, {f"{number % 7}/{number}.txt": f"Text {number}.\n\n" * (number % 5)})
    write_all(folder, {"3/broken.pdf": b"%PDF", "3/latin.txt": LATIN, "3/rows.csv": "text\none\ntwo,too\n"})
    alone = read(folder, processes=1), logged(caplog, "WARNING")
    assert (read(folder, processes=2), logged(caplog, "WARNING")) == alone
    (found, counts), _ = alone
    assert len(found) == 240 + 2
    assert counts == {
        **{"an empty file": 60, "broken file": 1, "read as Windows-1252": 1},
        "rows that cannot be read": 1,
    }


BAD = {
    "empty.md": (b"", "an empty file"),
    "blank.txt": (b" \n\n\t\n", "no text"),
    "title.md": (b"# Only a title\n", "no text"),
    "script.html": (b"<script>alert(1)</script>", "no text"),
    "latin.txt": (LATIN, "read as Windows-1252"),
    "no-latin.txt": (b"caf\xe9 \x81 \x8d", "read as Windows-1252"),
    "binary.txt": (b"\xff text \0 text", "binary data"),
    "zeros.txt": (b"ab\0\0cd\0\0ef\0\0", "binary data"),
    "zero.txt": (b"text, text \0 text", "NUL characters read as spaces"),
    "utf16.txt": (b"\xff\xfea\0b", "read with \ufffd for bytes that are not utf-16"),
    "junk.pdf": (b"%PDF-1.7 junk", "broken file"),
    "cut.pdf": (pdf_of("Some text.")[:300], "broken file"),
    "locked.pdf": (pdf_of("Some text.", password="secret"), "encrypted PDF"),  # noqa: S106
    "scan.pdf": (pdf_of(""), "PDF without text"),
    "quotes.csv": (b'text\none\n"two"2\nthree\n', "rows with quotes in the wrong place"),
    "header.csv": (b'"text\none\n', "rows with quotes in the wrong place"),
    "twice.csv": (b"text,text\none,two\n", "rows that cannot be read"),
    "columns.csv": (b"name\none\n", "rows that cannot be read"),
    "rowless.csv": (b"text\n\n", "no rows"),
    "lines.jsonl": (b'{"text": "one"}\n{"text": \n\nno\n', "rows that cannot be read"),
    "list.jsonl": (b'["text"]\n', "rows that cannot be read"),
    "deep.jsonl": (b"[" * 100_000 + b"\n", "rows that cannot be read"),
    "latin.csv": (b"text\n" + LATIN.replace(b",", b""), "rows read as Windows-1252"),
    "null.jsonl": (b'{"text": null}\n', "rows without text"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_one_line_and_one_count(folder, name, caplog):
    data, reason = BAD[name]
    write_all(folder, {"good.txt": "Text.", name: data})
    found, counts = read(folder)
    assert counts == {reason: 2 if name == "lines.jsonl" else 1}
    (line,) = logged(caplog, "WARNING")
    assert len(line.splitlines()) == 1
    assert line.startswith(f"{name!r}: {reason} (")
    assert "good.txt" in found
    rows = {"quotes.csv": 3, "header.csv": 1, "lines.jsonl": 1, "latin.csv": 1}
    assert len(found) == 1 + (name.endswith(("latin.txt", "utf16.txt", "zero.txt")) or rows.get(name, 0))


def test_huge_files_are_not_opened(folder, caplog):
    write_all(folder, {"good.txt": "Text."})
    for name in ("huge.txt", "rows/huge.jsonl.gz", "rows/huge.tsv", "rows/huge.parquet"):
        write_all(folder, {name: b""})
        os.truncate(folder / name, 2 * LARGEST)
    # Rows are streamed, whatever their number.
    assert [file.path for file in list_files(folder) if file.path.startswith("rows/")] == [
        *("rows/huge.jsonl.gz", "rows/huge.parquet", "rows/huge.tsv")
    ]
    shutil.rmtree(folder / "rows")
    found, counts = read(folder)
    assert (list(found), counts) == (["good.txt"], {"a file of more than 100 MB": 1})
    assert logged(caplog, "WARNING") == ["'huge.txt': a file of more than 100 MB (200,000,000 bytes)"]


def test_files_and_folders_that_cannot_be_opened(folder, caplog, monkeypatch):
    files = ("good.txt", "closed.txt", "shut/file.txt")
    write_all(folder, dict.fromkeys(files, "Text.") | {"closed.csv": "text\nText."})
    scandir = os.scandir

    def refuse(path):
        if Path(path).name == "shut":
            raise PermissionError(13, "Permission denied", path)
        return scandir(path)

    # Permissions do not stop root.
    monkeypatch.setattr(os, "access", lambda path, _: "closed" not in path)
    monkeypatch.setattr(os, "scandir", refuse)
    found, counts = read(folder)
    assert (list(found), counts) == (["good.txt"], {"unreadable file": 2, "unreadable folder": 1})
    lines = [f"'closed.{suffix}': unreadable file (permission denied)" for suffix in ("csv", "txt")]
    assert sorted(logged(caplog, "WARNING")) == [*lines, "'shut': unreadable folder (Permission denied)"]


def test_links_and_pipes(folder, tmp_path, caplog):
    write_all(tmp_path, {"docs/a/real.txt": "Text.", "secret.txt": "Secret.", "docs-of-others/file.txt": "Secret."})
    links = {
        "inside.txt": "a/real.txt",
        "outside.txt": tmp_path / "secret.txt",
        "neighbour.txt": tmp_path / "docs-of-others" / "file.txt",
        "others": tmp_path / "docs-of-others",
        "a/up": "..",
        "loop.txt": "loop2.txt",
        "loop2.txt": "loop.txt",
        "broken.txt": "nothing.txt",
    }
    for name, target in links.items():
        (folder / name).symlink_to(target)
    # It is not waited for.
    os.mkfifo(folder / "pipe.txt")
    found, counts = read(folder)
    assert list(found) == ["a/real.txt", "inside.txt"]
    assert counts == {"a link to a folder or out of the folder": 4, "unreadable file": 3, "an empty file": 1}
    assert len(logged(caplog, "WARNING")) == 8


NAMES = ["spaces and\u00a0more.txt", "#1.txt", "100%25.txt", "100%.txt", 'it\'s "quoted".txt', "\u202egnp.txt"]
NAMES += ["a\u200bb.txt", "Ünïcode 文書.txt", "-option.txt", "a;b&c$(d)`e`.txt", "a\\b.txt", "<b>.txt", "~.txt"]
# Forms of Unicode stay apart.
NAMES += ["\u00e9.txt", "e\u0301.txt"]


def test_odd_names_become_valid_ids_that_lead_back_to_the_files(folder):
    write_all(folder, dict.fromkeys(NAMES, "Text."))
    found, counts = read(folder)
    assert counts == {}
    assert sorted(map(unquote, found)) == sorted(NAMES)
    assert all(doc_id.isprintable() and len(doc_id.split()) == 1 and '"' not in doc_id for doc_id in found)
    assert {"100%2525.txt", "100%25.txt", "#1.txt", "spaces%20and%C2%A0more.txt", "%E2%80%AEgnp.txt"} <= set(found)


@pytest.mark.parametrize("name", ["a\nb.txt", "a\tb.txt", "a\x7fb.txt", b"latin-\xe9.txt"])
def test_names_that_no_line_can_show(folder, name, caplog):
    Path(os.fsdecode(os.path.join(os.fsencode(folder), os.fsencode(name)))).write_text("Text.")
    assert read(folder)[1] == {"a name with control characters or invalid Unicode": 1}
    (line,) = logged(caplog, "WARNING")
    assert line.isprintable()


@pytest.mark.parametrize("again", ["a", '"a"'])
def test_rows_with_the_same_id(folder, again):
    write_all(folder, {"rows.csv": f"id,text\na,one\nb,two\n{again},three\n"})
    fields = {"id": "id", "text": "text"}
    line = refusal(lambda path: read(path.parent, fields=fields), folder / "rows.csv")
    assert re.match("row 3: found the id 'a' again .* row 1", line)


def test_files_of_rows_in_all_formats_and_compressions(folder):
    lines = json.dumps({"id": "7", "text": "Some text."}) + "\n"
    table = pa.table({"ID": ["7"], "text": ["Some text."]})
    write_all(folder, {"a.tsv": "id\ttext\n7\tSome text.\n", "b.ndjson": lines, "c.jsonl.gz": lines})
    (folder / "d.jsonl.bz2").write_bytes(bz2.compress(lines.encode()))
    (folder / "e.csv.zst").write_bytes(pa.compress(b"id,text\n7,Some text.\n", codec="zstd", asbytes=True))
    pq.write_table(table, folder / "f.parquet")
    found, counts = read(folder)
    assert counts == {}
    names = ("a.tsv", "b.ndjson", "c.jsonl.gz", "d.jsonl.bz2", "e.csv.zst", "f.parquet")
    assert [*found] == [f"{name}/7" for name in names]
    assert {document.sections for document in found.values()} == {(Section((), ("Some text.",)),)}


def test_rows_of_a_single_file_keep_their_ids(folder):
    fields = {"id": "id", "text": "text"}
    write_all(folder, {"data/rows.csv": "id,text\nx 1,one\n", "LICENSE": "none"})
    assert [*read(folder, fields=fields)[0]] == ["x%201"]
    write_all(folder, {"data/readme.md": "Text."})
    assert [*read(folder, fields=fields)[0]] == ["data/readme.md", "data/rows.csv/x%201"]


def test_ids_may_be_names_of_files_without_folders_and_suffix(folder, caplog):
    files = {"html/CACM-0001.html": "<pre>Text.</pre>", "v1.2 a.txt": "Text.", "rows.csv": "id,text\n7,one\n"}
    write_all(folder, files)
    assert [*read(folder, ids="stem")[0]] == ["CACM-0001", "rows/7", "v1.2%20a"]
    write_all(folder, {"old/CACM-0001.txt": "Text."})
    found = "'html/CACM-0001.html' and 'old/CACM-0001.txt', which both are CACM-0001"
    assert line_of(read, folder, ids="stem").startswith(f"{folder}: found {found}")
    assert len(read(folder)[0]) == 4


CHANGES = {
    "changed": lambda folder: (folder / "b.txt").write_text("Longer text."),
    "touched": lambda folder: os.utime(folder / "b.txt", ns=(1, 1)),
    "removed": lambda folder: (folder / "c.txt").unlink(),
    "added": lambda folder: (folder / "d.txt").write_text("Text."),
}


@pytest.mark.parametrize("processes", [1, 2])
@pytest.mark.parametrize("change", CHANGES)
def test_a_change_while_the_folder_is_read_is_one_error(folder, change, processes):
    write_all(folder, dict.fromkeys(("a.txt", "b.txt", "c.txt"), "Text."))
    documents = iter_documents(folder, Skips(), processes=processes)
    next(documents)
    CHANGES[change](folder)
    with pytest.raises(InputError, match=r"docs: found a change of '[bcd]\.txt' while the folder was read"):
        list(documents)


def die(*_):
    os._exit(3)


def test_a_process_that_dies_is_one_error(folder, monkeypatch):
    write_all(folder, {"a.txt": "Text.", "b.txt": "Text."})
    monkeypatch.setattr("cort.sources.folder.parse_file", die)
    with pytest.raises(InputError, match="found a process that died"):
        list(iter_documents(folder, Skips(), processes=2))


def test_a_folder_without_documents_and_what_is_no_folder(folder, tmp_path):
    assert read(folder) == ({}, {})
    write_all(folder, {"empty.md": "", "sub/title.md": "# Title"})
    assert read(folder) == ({}, {"an empty file": 1, "no text": 1})
    for path, reason in ((tmp_path / "nothing", "No such file"), (folder / "empty.md", "Not a directory")):
        with pytest.raises(InputError, match=rf"{path}: found {reason}"):
            read(path)


OUTPUTS = [
    {"output_type": "stream", "text": ["printed \x1b[31mred\x1b[0m"]},
    {"output_type": "execute_result", "data": {"text/plain": ["result"]}},
    {"output_type": "display_data", "data": {"text/html": "<table><tr><td>a<td>b</table>", "text/plain": "unseen"}},
    {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "<Figure>"}},
    {"output_type": "error", "ename": "E", "evalue": "why", "traceback": ["\x1b[31mline\x1b[0m 1"]},
]
CELLS = [
    {"cell_type": "markdown", "metadata": {}, "source": ["# Guide\n", "\n", "Some *text*.\n"]},
    {"cell_type": "code", "metadata": {}, "source": "x = 1", "outputs": OUTPUTS, "execution_count": 1},
    {"cell_type": "raw", "metadata": {}, "source": ["raw"]},
]
# Before version 4, headings were cells, and what is "source" of code was "input".
OLD = [{"cell_type": "heading", "level": 1, "source": ["Guide"]}, {"cell_type": "code", "input": ["x = ", "1"]}]


def test_notebooks_of_both_layouts(folder):
    new = {"cells": CELLS, "metadata": {"language_info": {"name": "python"}}, "nbformat": 4, "nbformat_minor": 5}
    old = {"metadata": {"name": ""}, "nbformat": 3, "nbformat_minor": 0, "worksheets": [{"cells": OLD, "metadata": {}}]}
    files = {"new.ipynb": json.dumps(new), "old.ipynb": json.dumps(old), "no.ipynb": "{}", "list.ipynb": "[]"}
    write_all(folder, files)
    found, counts = read(folder)
    assert counts == {"broken notebook": 2}
    assert [document.title for document in found.values()] == ["Guide", "Guide"]
    shown = ("Some text.", "x = 1", "printed red", "result", "a b", "E: why", "raw")
    assert found["new.ipynb"].sections == (Section((), shown),)
    assert found["old.ipynb"].sections == (Section((), ("x = 1",)),)


def test_office_files_are_counted_with_one_line_if_their_readers_are_missing(folder, monkeypatch, caplog):
    files = {"a.docx": docx_of(("Normal", "Text.")), "b.epub": epub_of("T", "<p>Text.</p>"), "c.pptx": b"PK"}
    write_all(folder, files)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    found, counts = read(folder)
    assert ([*found], counts) == (["b.epub"], {"office files without their readers": 2})
    (line,) = logged(caplog, "WARNING")
    assert line.startswith(
        "'a.docx': office files without their readers (`pip install python-docx python-pptx openpyxl`"
    )


def test_office_files(folder):
    pytest.importorskip("docx", reason="python-docx is not installed")
    files = {
        "a.docx": docx_of(("Heading1", "Guide"), ("Heading2", "Use"), ("Normal", "Some text.")),
        "b.epub": epub_of("Guide", "<h2>Use</h2><p>Some text.</p>"),
        "c.pptx": pptx_of(("Guide", "Some text."), ("Use", "More.")),
        "d.xlsx": xlsx_of(Stock=[["item", None, "price"], ["nut", None, 3]]),
        "broken.docx": b"PK\3\4 junk",
    }
    write_all(folder, files)
    found, counts = read(folder)
    assert counts == {"broken file": 1}
    assert [document.title for document in found.values()] == ["Guide", "Guide", "Guide", ""]
    use = (Section(("Use",), ("Some text.",)),)
    assert [found["a.docx"].sections, found["b.epub"].sections] == [use, use]
    assert found["c.pptx"].sections == (Section((), ("Some text.",)), Section(("Use",), ("More.",)))
    assert found["d.xlsx"].sections == (Section(("Stock",), ("item price", "nut 3")),)

"""Documents in the files of a folder and of the folders in it.

| suffix                           | documents                                                           |
|----------------------------------|---------------------------------------------------------------------|
| ``.md .markdown``                | one (`cort/sources/markdown.py`)                                    |
| ``.html .htm .xhtml``            | one (`cort/sources/html.py`)                                        |
| ``.rst``                         | one (`cort/sources/rst.py`)                                         |
| ``.txt .text``                   | one, with paragraphs between empty lines                            |
| ``.pdf``                         | one (`cort/sources/pdf.py`)                                         |
| ``.ipynb``                       | one (`cort/sources/notebook.py`)                                    |
| ``.docx .pptx .xlsx .epub``      | one, if markitdown is installed (`cort/sources/office.py`)          |
| ``.csv .tsv .jsonl .parquet``    | one in each row (`cort/sources/rows.py`), also ``.jsonl.gz`` ...    |

The id of a document is the path of its file from the folder, with ``/`` between names; `encoded_id` writes the
characters that ids may not have. The id of a row follows that path, and stands alone if there is no other file. Hidden
files and folders are ignored. Only links to files in the folder are followed. Text is UTF-8, has a byte order mark, or
is as an HTML file declares; other text is read as Windows-1252, which is reported. Files that give no document are
reported and left out.
"""

from __future__ import annotations

import codecs
import hashlib
import logging
import os
import re
import stat
import sys
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

from cort.sources import html, markdown, notebook, office, pdf, rst
from cort.sources.documents import Content, Document, TooDeep, Unread, encoded_id, outline, paragraphs_of
from cort.sources.rows import DEFAULT, Fields, iter_rows
from cort.system.errors import input_error, shorten
from cort.system.processes import map_in_order

log = logging.getLogger(__name__)

LARGEST = 100_000_000
MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF32_LE: "utf-32",
    codecs.BOM_UTF32_BE: "utf-32",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
_CHARSET = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=[\s\"']*([\w-]+)", re.IGNORECASE)


def _read_plain(text: str) -> Content:
    return Content("", [(0, paragraph) for paragraph in paragraphs_of(text)])


READERS: dict[str, Callable[[str], Content]] = {
    **dict.fromkeys((".md", ".markdown"), markdown.read),
    **dict.fromkeys((".html", ".htm", ".xhtml"), html.read),
    **dict.fromkeys((".txt", ".text"), _read_plain),
    ".rst": rst.read,
    ".ipynb": notebook.read,
}
BINARY: dict[str, Callable[[bytes], Content]] = {".pdf": pdf.read, **office.READERS}
_ROWS = re.compile(r".+\.(?:csv|tsv|jsonl|ndjson|parquet)(?:\.(?:gz|bz2|xz|zst))?", re.IGNORECASE | re.DOTALL)


class File(NamedTuple):
    """A file: its path from the folder, its size in bytes, and when it was changed, in ns."""

    path: str
    size: int
    changed: int


class Skipped(NamedTuple):
    """A file that gives no document, or not all it has, or that was read with doubts; files are counted by `reason`.

    Without a detail, no message is needed.
    """

    path: str
    reason: str
    detail: str | None


OnSkip = Callable[[Skipped], None]


class Skips:
    """Logs what is skipped and counts it by reason."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __call__(self, skipped: Skipped) -> None:
        """Count a file, with a line in the log if it is of a known type."""
        self.counts[skipped.reason] += 1
        is_known = skipped.reason == office.MISSING and self.counts[office.MISSING] > 1
        if skipped.detail is not None and not is_known:
            log.warning("%s: %s (%s)", shorten(skipped.path, 200), skipped.reason, skipped.detail)


def state(folder: str | Path) -> str:
    """Return a digest of the paths, sizes and times of all files with documents; no file is opened."""
    return hashlib.sha256(repr(list_files(folder)).encode()).hexdigest()[:16]


def iter_documents(
    folder: str | Path, on_skip: OnSkip, fields: Fields = DEFAULT, processes: int = 1
) -> Iterator[Document]:
    """Yield the documents of a folder, in order of the files' paths; `fields` are those of CSV and JSONL.

    Files are parsed by as many `processes`, a few in advance. If the folder changes meanwhile, the end is an error.
    """
    root = os.path.realpath(folder)
    files = list_files(folder, on_skip)
    parsed = map_in_order(partial(parse_file, root), (file.path for file in files), processes)
    for (path, *_), (document, skips) in zip(files, parsed, strict=True):
        for skipped in skips:
            on_skip(skipped)
        if document:
            yield document
        elif has_rows(path):
            # Rows are faster parsed than passed on.
            prefix = f"{encoded_id(path)}/" if len(files) > 1 else ""
            yield from _iter_rows(root, path, prefix, fields, on_skip)
    if changes := set(files) ^ set(list_files(folder)):
        found = f"a change of {shorten(min(changes).path)} while the folder was read"
        raise input_error(folder, found, "a folder that stays as it is", "run again when nothing writes there")


def has_rows(path: str) -> bool:
    """Whether a file has a document in each row."""
    return _ROWS.fullmatch(path) is not None


def list_files(folder: str | Path, on_skip: OnSkip = lambda _: None) -> list[File]:
    """List the files that may hold documents, sorted by path; report the others."""
    root = os.path.realpath(folder)
    files, folders = [], [""]
    while folders:
        below = folders.pop()
        try:
            with os.scandir(os.path.join(root, below)) as entries:
                children = sorted(entries, key=lambda entry: entry.name)
        except OSError as error:
            if not below:
                raise input_error(folder, error.strerror, "a folder that can be read", "name another") from error
            on_skip(Skipped(below, "unreadable folder", error.strerror))
            continue
        for entry in children:
            if entry.name.startswith("."):
                continue
            path = os.path.join(below, entry.name)
            try:
                if file := _listed(root, path, entry):
                    files.append(file)
                else:
                    folders.append(path)
            except Unread as error:
                on_skip(Skipped(path, *error.args))
            except OSError as error:
                on_skip(Skipped(path, "unreadable file", error.strerror))
    return sorted(files)


def _listed(root: str, path: str, entry: os.DirEntry[str]) -> File | None:
    """Return a file that may hold documents, or None for a folder."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in entry.name):
        raise Unread("a name with control characters or invalid Unicode", "rename it")
    if entry.is_symlink():
        target = os.path.realpath(entry.path, strict=True)
        if os.path.commonpath([root, target]) != root or os.path.isdir(target):
            raise Unread("a link to a folder or out of the folder", "copy what it leads to")
    if entry.is_dir():
        return None
    suffix = os.path.splitext(entry.name)[1].lower()
    if not (suffix in READERS or suffix in BINARY or has_rows(path)):
        raise Unread(f"other files ({suffix or 'no suffix'})", None)
    if suffix in office.READERS and not office.is_installed():
        raise Unread(office.MISSING, office.REMEDY)
    status = entry.stat()
    if not stat.S_ISREG(status.st_mode):
        raise Unread("no regular file", "a pipe, socket or device")
    # Rows are streamed.
    if not 0 < status.st_size <= (sys.maxsize if has_rows(path) else LARGEST):
        reason = f"a file of more than {LARGEST // 1_000_000} MB" if status.st_size else "an empty file"
        raise Unread(reason, f"{status.st_size:,} bytes")
    return File(path, status.st_size, status.st_mtime_ns)


def parse_file(root: str, path: str) -> tuple[Document | None, list[Skipped]]:
    """Parse a file with one document, and say why it has none or what is doubtful; no file is an error.

    A file with a document in each row is not opened.
    """
    skips: list[Skipped] = []
    if has_rows(path):
        return None, skips

    def doubt(unread: Unread) -> None:
        skips.append(Skipped(path, *unread.args))

    try:
        document = outline(encoded_id(path), _read(Path(root, path), doubt))
        if document.sections:
            return document, skips
        doubt(Unread("no text", "nothing below its headings" if document.title else "nothing but markup"))
    except Unread as error:
        doubt(error)
    except OSError as error:
        doubt(Unread("unreadable file", error.strerror))
    # Whatever a library does not foresee in a file.
    except Exception as error:
        doubt(Unread("broken file", shorten(f"{type(error).__name__}: {error}", 120)))
    return None, skips


def _read(path: Path, doubt: Callable[[Unread], None]) -> Content:
    suffix = path.suffix.lower()
    if suffix in BINARY:
        return BINARY[suffix](path.read_bytes())
    text = _decoded(path.read_bytes(), doubt)
    try:
        return READERS[suffix](text)
    except (TooDeep, RecursionError):
        doubt(Unread("read as plain text", "it is nested too deeply"))
        return _read_plain(text)


def _iter_rows(root: str, path: str, prefix: str, fields: Fields, on_skip: OnSkip) -> Iterator[Document]:
    def doubt(unread: Unread) -> None:
        on_skip(Skipped(path, *unread.args))

    try:
        yield from iter_rows(Path(root, path), prefix, fields, doubt)
    except OSError as error:
        doubt(Unread("unreadable file", error.strerror))


def _decoded(data: bytes, doubt: Callable[[Unread], None]) -> str:
    marked = next((encoding for mark, encoding in MARKS.items() if data.startswith(mark)), None)
    try:
        text = data.decode(marked or "utf-8")
    except UnicodeDecodeError as error:
        if marked:
            raise Unread("broken text", f"invalid {marked} at byte {error.start}") from error
        text = _decoded_otherwise(data, doubt)
    if "\0" in text:
        raise Unread("binary data", f"a NUL character after {text.index(chr(0))} others")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _decoded_otherwise(data: bytes, doubt: Callable[[Unread], None]) -> str:
    """Decode as an HTML file declares, or as Windows-1252, which browsers also take for Latin-1."""
    declared = _CHARSET.search(data[:1024])
    try:
        name = codecs.lookup(declared[1].decode()).name if declared else "ascii"
        return data.decode("cp1252" if name == "iso8859-1" else name)
    except (LookupError, UnicodeDecodeError):
        pass
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError as error:
        raise Unread("neither UTF-8 nor Windows-1252", "convert it (`iconv`)") from error
    doubt(Unread("read as Windows-1252", "it is not UTF-8; convert it (`iconv`) if it is something else"))
    return text

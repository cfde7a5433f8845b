"""Documents in the files of a folder and of the folders in it.

| suffix                           | documents                                                           |
|----------------------------------|---------------------------------------------------------------------|
| ``.md .markdown .mdx .qmd .rmd`` | one (`cort/sources/markdown.py`)                                    |
| ``.html .htm .xhtml``            | one (`cort/sources/html.py`)                                        |
| ``.rst``                         | one (`cort/sources/rst.py`)                                         |
| ``.txt .text``                   | one, with paragraphs between empty lines                            |
| ``.pdf``                         | one (`cort/sources/pdf.py`)                                         |
| ``.ipynb``                       | one (`cort/sources/notebook.py`)                                    |
| ``.docx .pptx .xlsx .epub``      | one, if their readers are installed (`cort/sources/office.py`)      |
| ``.csv .tsv .jsonl .parquet``    | one in each row (`cort/sources/rows.py`), also ``.jsonl.gz`` ...    |
| ``.json``                        | one in each object, if the first has a text                         |

The id of a document is the path of its file from the folder, with ``/`` between names, or the name of its file without
suffix (`Ids`); `encoded_id` writes the characters that ids may not have. The id of a row follows that of its file, and
stands alone if there is no other file. Hidden files, and those in hidden folders, are counted and left out. Only links
to files in the folder are followed. Text that is not UTF-8 is read as `cort.formats.decoding` says, and reported if
that leaves doubts. Files that give no document are reported and left out.
"""

from __future__ import annotations

import json
import logging
import os
import re
import sys
import tempfile
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Literal, NamedTuple

from cort.formats.decoding import decode_file
from cort.formats.fields import encoded_id
from cort.formats.rows import DEFAULT, Fields
from cort.runtime.errors import input_error, shorten
from cort.runtime.processes import map_in_order
from cort.sources import html, hyphens, markdown, notebook, office, pdf, rst
from cort.sources.documents import Content, Document, Unread, outline, paragraphs_of
from cort.sources.furniture import Page, Repeats, content_of
from cort.sources.rows import iter_rows

log = logging.getLogger(__name__)

#: what the ids of documents are: paths of files (default), or names of files without folders and suffix
Ids = Literal["path", "stem"]
LARGEST = 100_000_000


def _read_plain(text: str) -> Content:
    return Content("", [(0, paragraph) for paragraph in paragraphs_of(text)])


PAGES = (".html", ".htm", ".xhtml")
READERS: dict[str, Callable[[str], Content]] = {
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"), markdown.read),
    **dict.fromkeys(PAGES, html.read),
    **dict.fromkeys((".txt", ".text"), _read_plain),
    ".rst": rst.read,
    ".ipynb": notebook.read,
}
BINARY: dict[str, Callable[[bytes], Content]] = {".pdf": pdf.read, **office.READERS}
_ROWS = re.compile(r".+\.(?:csv|tsv|jsonl?|ndjson|parquet)(?:\.(?:gz|bz2|xz|zst))?", re.IGNORECASE | re.DOTALL)


class File(NamedTuple):
    """A file: its path from the folder, its size in bytes, and when it was changed, in ns."""

    path: str
    size: int
    changed: int


#: gets the path of a file that gives no document, or not all it has, or that was read with doubts, and why
OnSkip = Callable[[str, Unread], None]


class Skips:
    """Logs what is skipped and counts it by reason; counts the words that are left out of files that are read.

    :ivar words: by kind.
    :ivar most: path of the file that lost most, and how many words; with the same number, the first.
    """

    def __init__(self) -> None:
        self.counts, self.words = Counter[str](), Counter[str]()
        self.most = ("", 0)

    def __call__(self, path: str, why: Unread) -> None:
        """Count a file, with a line in the log if there are details."""
        reason, detail = why.args
        self.counts[reason] += why.count
        if detail and not (reason == office.MISSING and self.counts[reason] > 1):
            log.warning("%s: %s (%s)", shorten(path, 200), reason, detail)

    def leave(self, path: str, words: Mapping[str, int]) -> None:
        """Count the words that were left out of a file."""
        self.words.update(words)
        if (total := sum(words.values())) > self.most[1]:
            self.most = path, total

    def left_out(self) -> dict[str, int]:
        """Return how many words were left out of files, by kind, and of the file that lost most."""
        found = {f"words left out: {kind}": count for kind, count in sorted(self.words.items())}
        path, count = self.most
        return found | ({f"words left out: most, of {shorten(path, 200)}": count} if count else {})


class Parsed(NamedTuple):
    """What a file gives: a document, or a page that is compared with others, or neither; and what is said about it."""

    document: Document | None = None
    page: Page | None = None
    doubts: tuple[Unread, ...] = ()
    left: Mapping[str, int] = {}


def iter_documents(
    folder: str | Path, skips: Skips, fields: Fields = DEFAULT, processes: int = 1, ids: Ids | None = None
) -> Iterator[Document]:
    """Yield the documents of a folder, in order of the files' paths; `fields` are those of CSV and JSONL.

    Files are parsed by as many `processes`, a few in advance; pages of HTML before all others, as what they share is no
    text of theirs.

    :raises InputError: for two files with one id, and at the end, if the folder changed meanwhile.
    """
    files = list_files(folder, skips)
    named: dict[str, str] = {}
    for path, *_ in files:
        if (other := named.setdefault(_id_of(path, ids), path)) != path:
            found = f"{shorten(other)} and {shorten(path)}, which both are {_id_of(path, ids)}"
            raise input_error(folder, found, "files with names of their own", "rename one, or set `ids: path`")
    has_open = any(path.lower().endswith(".pdf") for path in named.values())
    yield from hyphens.settled(_parsed(folder, named, skips, fields, processes), has_open)
    if changes := set(files) ^ set(list_files(folder)):
        found = f"a change of {shorten(min(changes).path)} while the folder was read"
        raise input_error(folder, found, "a folder that stays as it is", "run again when nothing writes there")


def _parsed(
    folder: str | Path, named: dict[str, str], skips: Skips, fields: Fields, processes: int
) -> Iterator[Document]:
    """Yield the documents of files, given as ids and paths."""
    parse = partial(parse_file, folder)
    others = map_in_order(parse, [one for one in named.items() if not _is_page(one[1])], processes)
    compared = _compared([one for one in named.items() if _is_page(one[1])], parse, skips, processes)
    for doc_id, path in named.items():
        parsed = next(compared if _is_page(path) else others)
        for doubt in parsed.doubts:
            skips(path, doubt)
        skips.leave(path, parsed.left)
        if parsed.document:
            yield parsed.document
        elif has_rows(path):
            # Rows are faster parsed than passed on.
            prefix = f"{doc_id}/" if len(named) > 1 else ""
            yield from iter_rows(Path(folder, path), prefix, fields, partial(skips, path))


def _id_of(path: str, ids: Ids | None) -> str:
    return encoded_id(Path(path).stem if ids == "stem" else path)


def _is_page(path: str) -> bool:
    return os.path.splitext(path)[1].lower() in PAGES


def _compared(
    named: list[tuple[str, str]], parse: Callable[[tuple[str, str]], Parsed], skips: Skips, processes: int
) -> Iterator[Parsed]:
    """Yield what HTML files give; they wait in a temporary file until all are parsed, and doubts are told at once."""
    repeats = Repeats()
    with tempfile.TemporaryFile() as waiting:
        for (_, path), parsed in zip(named, map_in_order(parse, named, processes), strict=True):
            if parsed.page:
                repeats.add(path, parsed.page)
            for doubt in parsed.doubts:
                skips(path, doubt)
            waiting.write(json.dumps(parsed.page).encode() + b"\n")
        waiting.seek(0)
        for (doc_id, path), line in zip(named, waiting, strict=True):
            page = json.loads(line)
            yield _finished(doc_id, content_of(Page.restored(*page), repeats.of(path)), ()) if page else Parsed()


def read_alone(folder: str | Path, path: str) -> Document | None:
    """Read the document of a file, a page without comparison with others; None if it has none."""
    parsed = parse_file(folder, (path, path))
    return _finished(path, content_of(parsed.page), ()).document if parsed.page else parsed.document


def _finished(doc_id: str, content: Content, doubts: tuple[Unread, ...]) -> Parsed:
    """Arrange the content of a file, and count the words that are left out; without text, say so."""
    document, left = outline(doc_id, content), Counter[str]()
    doubts += content.doubts
    for kind, text in content.left:
        left[kind] += len(text.split())
    if not document.sections:
        doubts += (Unread("no text", "nothing below its headings" if document.title else "nothing but markup"),)
    return Parsed(document if document.sections else None, None, doubts, left)


def has_rows(path: str) -> bool:
    """Whether a file has a document in each row."""
    return _ROWS.fullmatch(path) is not None


def list_files(folder: str | Path, on_skip: OnSkip = lambda *_: None) -> list[File]:
    """List the files that may hold documents, sorted by path; report the others."""
    root = os.path.realpath(folder)
    files: list[File] = []

    def unreadable(error: OSError) -> None:
        if error.filename == root:
            raise input_error(folder, error.strerror, "a folder that can be read", "name another") from error
        on_skip(os.path.relpath(error.filename, root), Unread("unreadable folder", error.strerror))

    for below, folders, names in os.walk(root, onerror=unreadable):
        links = [name for name in folders if os.path.islink(os.path.join(below, name))]
        for name in sorted([*names, *links]):
            path = os.path.relpath(os.path.join(below, name), root)
            try:
                if not (path.startswith(".") or "/." in path):
                    files.append(_listed(root, path))
                elif _may_have_documents(path):
                    # Programs keep others there.
                    on_skip(path, Unread("hidden files", None))
            except Unread as error:
                on_skip(path, error)
            except OSError as error:
                on_skip(path, Unread("unreadable file", error.strerror))
    return sorted(files)


def _may_have_documents(path: str) -> bool:
    suffix = os.path.splitext(path)[1].lower()
    return suffix in READERS or suffix in BINARY or has_rows(path)


def _listed(root: str, path: str) -> File:
    """Return a file that may hold documents."""
    if any(unicodedata.category(character) in ("Cc", "Cs") for character in path):
        raise Unread("a name with control characters or invalid Unicode", "rename it")
    target = os.path.realpath(os.path.join(root, path), strict=True)
    if os.path.commonpath([root, target]) != root or os.path.isdir(target):
        raise Unread("a link to a folder or out of the folder", "copy what it leads to")
    suffix = os.path.splitext(path)[1].lower()
    if not _may_have_documents(path):
        raise Unread(f"other files ({suffix or 'no suffix'})", None)
    if not office.is_installed(suffix):
        raise Unread(office.MISSING, office.REMEDY)
    if not os.access(target, os.R_OK):
        raise Unread("unreadable file", "permission denied")
    status = os.stat(target)
    # Rows are streamed.
    if not 0 < status.st_size <= (sys.maxsize if has_rows(path) else LARGEST):
        reason = f"a file of more than {LARGEST // 1_000_000} MB" if status.st_size else "an empty file"
        raise Unread(reason, f"{status.st_size:,} bytes")
    return File(path, status.st_size, status.st_mtime_ns)


def parse_file(folder: str | Path, named: tuple[str, str]) -> Parsed:
    """Parse a file with one document, named by its id and path; say why it has none or what is doubtful.

    No file is an error. One with a document in each row is not opened.
    """
    doc_id, path = named
    suffix, doubts = os.path.splitext(path)[1].lower(), list[Unread]()
    if has_rows(path):
        return Parsed()
    try:
        data = Path(folder, path).read_bytes()
        if suffix in BINARY:
            return _finished(doc_id, BINARY[suffix](data), ())
        text = _decoded(data, doubts.append)
        if suffix in PAGES:
            return Parsed(None, html.parse(text), tuple(doubts))
        return _finished(doc_id, READERS[suffix](text), tuple(doubts))
    except Unread as error:
        doubts.append(error)
    # Whatever a library does not foresee in a file.
    except Exception as error:
        doubts.append(Unread("broken file", shorten(f"{type(error).__name__}: {error}", 120)))
    return Parsed(None, None, tuple(doubts))


def _decoded(data: bytes, doubt: Callable[[Unread], None]) -> str:
    """Decode a file (`cort.formats.decoding`), and tell doubts."""
    found = decode_file(data)
    if count := found.text.count("\0"):
        if found.doubt or 10 * count > len(found.text):
            raise Unread("binary data", f"a NUL character after {found.text.index(chr(0))} others")
        doubt(Unread("NUL characters read as spaces", f"{count:,}", count))
    if found.doubt:
        doubt(Unread(found.doubt, found.remedy))
    return found.text.replace("\0", " ").replace("\r\n", "\n").replace("\r", "\n")

"""The language that most documents of a folder are in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from cort.formats.rows import DEFAULT, Fields
from cort.sources.folder import File, has_rows, list_files, read_alone
from cort.sources.rows import iter_rows

# Documents that are looked at, and characters of each; fewest bytes by which a language is known.
DOCUMENTS, CHARACTERS, FEWEST = 60, 2_000, 80
# What the library calls both written forms of Norwegian, and a language that is nearly the same.
SAME = {"nb": "no", "nn": "no", "ms": "id"}


class Spoken(NamedTuple):
    """The most frequent language of the documents that were looked at; "" if none had enough text.

    :ivar number: how many of them are in it, of `of`.
    """

    code: str
    number: int
    of: int


def language_of(folder: str | Path, fields: Fields = DEFAULT) -> Spoken:
    """Tell the language of a folder's documents by a sample: files at equal distances in the order of their paths."""
    files = list_files(folder)
    step = max(1, len(files) // DOCUMENTS)
    texts = (text for file in files[::step] for text in islice(_texts(folder, file, fields), DOCUMENTS))
    known = Counter[str]()
    for text in islice((text for text in texts if len(text.encode()) >= FEWEST), 2 * DOCUMENTS):
        known[_code_of(text)] += 1
    # Of two that are as frequent, the first in the alphabet.
    code, number = min(known.items(), key=lambda item: (-item[1], item[0]), default=("", 0))
    return Spoken(code, number, known.total())


def _code_of(text: str) -> str:
    # Its model takes a second.
    from py3langid import langid

    code = str(langid.classify(text[:CHARACTERS])[0])
    return SAME.get(code, code)


def _texts(folder: str | Path, file: File, fields: Fields) -> Iterator[str]:
    if has_rows(file.path):
        for document in iter_rows(Path(folder, file.path), "", fields, lambda _: None):
            yield document.text
        return
    if alone := read_alone(folder, file.path):
        yield alone.text

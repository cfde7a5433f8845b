"""TREC-CAR (Dietz and Gamari, 2017): Wikipedia's paragraphs as CBOR, and topics that are named in the judgements.

A file of paragraphs is the array ``["CAR", [2, []], provenance]`` and then one array without a length. A paragraph in
it is ``[0, id, parts]``; a part is ``[0, text]``, or a link ``[1, [0, page, section, page's id, text]]``. Its text is
that of all parts, with nothing in between, as Anserini indexes it.

A topic is a page and the headings above a section, ``enwiki:PAGE/HEADING/HEADING``. Its text is made as in "Passage
Re-ranking with BERT": without ``enwiki:``, with blanks for ``%20`` and ``/``; other ``%`` stay.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, cast

from cort.formats.fields import BadLine
from cort.formats.lines import Rows, unpacked
from cort.formats.records import Qrel, Text
from cort.system.errors import input_error, shorten

PARAGRAPHS = 2
#: text of a paragraph that has none, of which there are eight: it is indexed as no term, and its id stays known
EMPTY = "."
LIST, BREAK = b"\x9f", b"\xff"
PREFIX = "enwiki:"
DEEPEST = 16
WHOLE = "a file of paragraphs of TREC-CAR v2.0, whole"
AGAIN = "fetch or unpack it again"


def iter_paragraphs(path: str | Path, checked: Callable[[str, str], Text]) -> Rows[Text]:
    """Stream (number of the paragraph, paragraph); `checked` makes it of an id and a text, or raises a `BadLine`."""
    try:
        from cbor2 import CBORDecodeEOF, CBORDecodeError, CBORDecoder
    except ImportError as error:
        raise input_error(path, "CBOR", "the Python package cbor2, which reads it", "`pip install cbor2`") from error
    number = 0
    try:
        with open(path, "rb") as packed:
            file = unpacked(path, packed)
            # No byte too many, after which it would seek: what is gzipped is then unpacked from its beginning.
            decoder = CBORDecoder(cast("IO[bytes]", file), max_depth=DEEPEST, read_size=1)
            _check_header(path, decoder.decode(), file.read(1))
            while (first := file.peek(1)[:1]) != BREAK:
                number += 1
                if not first:
                    raise input_error(path, f"its end after {number - 1} paragraphs", WHOLE, AGAIN)
                doc_id, text = _paragraph(decoder.decode())
                yield number, checked(doc_id, text or EMPTY)
            # Also to the checksum of what is gzipped.
            if len(file.read(2)) > 1:
                raise input_error(path, f"data after the end of its {number} paragraphs", WHOLE, AGAIN)
    except BadLine as bad:
        found, expected, fix = bad.args
        raise input_error(path, found, expected, fix, number) from bad
    except (CBORDecodeEOF, EOFError) as error:
        raise input_error(path, "its end in the middle", WHOLE, AGAIN, number or None) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise input_error(path, f"damaged gzip data after {number} paragraphs ({error})", WHOLE, AGAIN) from error
    except (CBORDecodeError, RecursionError) as error:
        found = f"no CBOR ({shorten(str(error))})"
        raise input_error(path, found, WHOLE, AGAIN, number or None) from error


def topics(qrels: Rows[Qrel], path: str | Path) -> Rows[Text]:
    """Stream (row, topic) of the queries that judgements name, each once, at its first row."""
    seen: set[str] = set()
    for row, (query_id, _, _) in qrels:
        if query_id not in seen:
            seen.add(query_id)
            page, _, headings = query_id.removeprefix(PREFIX).partition("/")
            if not query_id.startswith(PREFIX) or not page:
                found = f"the topic {shorten(query_id)} without a page"
                expected = f"{PREFIX}PAGE/HEADING, as TREC-CAR's hierarchical judgements have them"
                raise input_error(path, found, expected, "name a file of queries, or correct the topic", row)
            yield row, Text(query_id, " ".join(f"{page}/{headings}".replace("%20", " ").replace("/", " ").split()))


def _check_header(path: str | Path, header: object, opened: bytes) -> None:
    match header:
        case ["CAR", [kind, *_], *_] if kind == PARAGRAPHS and opened == LIST:
            return
        case ["CAR", [kind, *_], *_] if opened == LIST:
            found = f"pages or outlines of TREC-CAR (type {shorten(str(kind))})"
            raise input_error(path, found, "its paragraphs", "name dedup.articles-paragraphs.cbor")
        case _:
            raise input_error(path, "no header of TREC-CAR", WHOLE, AGAIN)


def _paragraph(item: object) -> tuple[str, str]:
    """Take an id and a text out of a paragraph."""
    match item:
        case [0, bytes(doc_id), list(parts)]:
            return doc_id.decode("ascii", "backslashreplace"), "".join(map(_text_of, parts)).strip()
    raise BadLine(f"{shorten(str(item))}", "a paragraph: 0, id and parts", AGAIN)


def _text_of(part: object) -> str:
    match part:
        case [0, str(text)] | [1, [_, _, _, _, str(text)]]:
            return text
    raise BadLine(f"{shorten(str(part))}", "a text, or a link with one", AGAIN)

"""TREC-CAR (Dietz and Gamari, 2017): paragraphs of Wikipedia in CBOR, and topics in the ids of judgements."""

import gzip
import zlib
from pathlib import Path
from typing import IO, cast

from cort.formats.fields import BadLine, writable_id
from cort.formats.lines import Rows, unpacked
from cort.formats.records import EMPTY, Qrel, Text
from cort.system.errors import input_error, shorten

# The opener of an array, its end, and the type in the header of files of paragraphs.
LIST, BREAK, PARAGRAPH_FILE = b"\x9f", b"\xff", 2
PREFIX = "enwiki:"
DEEPEST = 16
WHOLE = ("a complete file of TREC-CAR v2.0 paragraphs", "fetch or unpack it again")


def iter_paragraphs(path: str | Path) -> Rows[Text]:
    """Stream (number of the paragraph, paragraph) from a CBOR file.

    The file is the array ``["CAR", [2, []], provenance]`` followed by an array of indefinite length. A paragraph in it
    is ``[0, id, parts]``; a part is ``[0, text]`` or a link, ``[1, [0, page, section, page's id, text]]``. The texts of
    all parts are joined without a separator, as in Anserini's index.
    """
    try:
        from cbor2 import CBORDecodeEOF, CBORDecodeError, CBORDecoder
    except ImportError as error:
        raise input_error(path, "CBOR", "the Python package cbor2, which reads it", "`pip install cbor2`") from error
    number = 0
    try:
        with open(path, "rb") as packed:
            file = unpacked(packed)
            # The decoder must not read ahead: it would seek back, and gzip would unpack again from the start.
            decoder = CBORDecoder(cast("IO[bytes]", file), max_depth=DEEPEST, read_size=1)
            _check_header(path, decoder.decode(), file.read(1))
            while (first := file.peek(1)[:1]) != BREAK:
                number += 1
                if not first:
                    raise input_error(path, f"the end of the file after {number - 1} paragraphs", *WHOLE)
                doc_id, text = _paragraph(decoder.decode())
                yield number, Text(writable_id("doc_id", doc_id), text or EMPTY)
            # Reading to the end also verifies the checksum of gzip.
            if len(file.read(2)) > 1:
                raise input_error(path, f"data after the last of {number} paragraphs", *WHOLE)
    except BadLine as bad:
        found, expected, fix = bad.args
        raise input_error(path, found, expected, fix, number) from bad
    except (CBORDecodeEOF, EOFError) as error:
        raise input_error(path, "a truncated file", *WHOLE, number or None) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise input_error(path, f"damaged gzip data after {number} paragraphs ({error})", *WHOLE) from error
    except (CBORDecodeError, RecursionError) as error:
        raise input_error(path, f"invalid CBOR ({shorten(str(error))})", *WHOLE, number or None) from error


def _check_header(path: str | Path, header: object, opened: bytes) -> None:
    match header:
        case ["CAR", [kind, *_], *_] if kind == PARAGRAPH_FILE and opened == LIST:
            return
        case ["CAR", [kind, *_], *_] if opened == LIST:
            found = f"TREC-CAR pages or outlines (type {shorten(str(kind))})"
            raise input_error(path, found, "paragraphs", "name dedup.articles-paragraphs.cbor")
        case _:
            raise input_error(path, "no TREC-CAR header", *WHOLE)


def _paragraph(item: object) -> tuple[str, str]:
    match item:
        case [0, bytes(doc_id), list(parts)]:
            return doc_id.decode("ascii", "backslashreplace"), "".join(map(_text_of, parts)).strip()
    raise BadLine(f"{shorten(str(item))}", "a paragraph: 0, id and parts", WHOLE[1])


def _text_of(part: object) -> str:
    match part:
        case [0, str(text)] | [1, [_, _, _, _, str(text)]]:
            return text
    raise BadLine(f"{shorten(str(part))}", "a text, or a link with one", WHOLE[1])


def iter_topics(path: str | Path, qrels: Rows[Qrel]) -> Rows[Text]:
    """Stream (row, topic) for the queries of judgements, each with its first row.

    A topic is a page and the headings above a section, ``enwiki:PAGE/HEADING/HEADING``. As in "Passage Re-ranking with
    BERT", its text omits ``enwiki:`` and has spaces for ``%20`` and ``/``; other ``%`` stay.
    """
    seen: set[str] = set()
    for row, (query_id, _, _) in qrels:
        if query_id not in seen:
            seen.add(query_id)
            page, _, headings = query_id.removeprefix(PREFIX).partition("/")
            if not query_id.startswith(PREFIX) or not page:
                found = f"the topic {shorten(query_id)} without a page"
                expected = f"{PREFIX}PAGE/HEADING, as in TREC-CAR's hierarchical judgements"
                raise input_error(path, found, expected, "name a file of queries, or correct the topic", row)
            yield row, Text(query_id, " ".join(f"{page}/{headings}".replace("%20", " ").replace("/", " ").split()))

"""Documents, queries and judgements in the layouts of BEIR and MTEB: a local folder, or a dataset on Hugging Face.

| what      | files                                               | columns                                           |
|-----------|-----------------------------------------------------|---------------------------------------------------|
| documents | ``corpus.jsonl``, ``corpus/*`` (JSONL or Parquet)   | _id or id, title, text                            |
| queries   | ``queries.jsonl``, ``queries/*`` (JSONL or Parquet) | _id or id, text                                   |
| qrels     | ``qrels/SPLIT.*`` (TSV, JSONL or Parquet)           | query-id, corpus-id, and score (1 without others) |

``default/`` and ``data/`` may stand for ``qrels/``, and ``test.tsv`` for ``qrels/test.tsv``; ``data/`` may have all.
JSONL and TSV may end in ``.gz``. A file may be in parts: ``test-00000-of-00002.parquet`` or ``test/0000.parquet``.

A source is a folder, or ``NAME@COMMIT``, a dataset on the hub. Of a source with several collections, ``SOURCE#PART`` is
one: its files are in ``PART-corpus``, ``PART/corpus`` or ``corpus/PART-*``. No code of a dataset is ever run.
"""

from __future__ import annotations

import logging
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from cort.formats import judgements, topics
from cort.formats.records import Qrel, Text
from cort.runtime.errors import input_error, shorten, suggest
from cort.runtime.hub import fetch_snapshot
from cort.sources.documents import Document
from cort.sources.files import iter_file_documents

log = logging.getLogger(__name__)

ON_HUB = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@([0-9a-f]{40})", re.ASCII)
WANTED = ["corpus*", "queries*", "qrels/*", "default/*", "data/*", "*.tsv", "*.tsv.gz"]
TEXTS = re.compile(r"(?:data/)?(corpus|queries)(?:/(.+?))?(?:-\d{5}-of-\d{5})?\.(?:jsonl(?:\.gz)?|parquet)")
JUDGEMENTS = re.compile(
    r"(?:(?:qrels|default|data)/|(?=(?:train|dev|validation|test)\.tsv))"
    r"((?!corpus|queries)[^/]+?)(?:-\d{5}-of-\d{5}|/\d{4})?\.(?:(?:tsv|jsonl)(?:\.gz)?|parquet)"
)
PART = re.compile(r"(.*)-\d{5}-of-(\d{5})\..*")
EXPECTED = "corpus.jsonl or corpus/*.parquet, queries likewise, and qrels/SPLIT.tsv, .jsonl or .parquet"
PARTS = "`SOURCE#PART` is one of several collections (PART-corpus)"
QRELS = "qrels/"
LONGEST_LIST = 200


def iter_documents(source: str) -> Iterator[Document]:
    """Stream the documents of a source, which may be empty; without a title, it is "".

    Like the other functions of this module:

    :raises InputError: for a missing source, an unknown layout or split, a damaged file, or an invalid row.
    """
    return iter_file_documents(_files(source, "corpus"), {}, Counter())


def iter_queries(source: str) -> Iterator[Text]:
    """Stream the queries of all splits."""
    for path in _files(source, "queries"):
        yield from (query for _, query in topics.iter_queries(path))


def iter_qrels(source: str, part: str) -> Iterator[Qrel]:
    """Stream the judgements of a split, or of ``SOURCE#SPLIT`` if another dataset has them."""
    judged, _, split = part.rpartition("#")
    for path in _files(judged or source, QRELS + split):
        yield from (qrel for _, qrel in judgements.iter_qrels(path))


def files(source: str, part: str = "") -> list[str]:
    """List all files that the functions of this module read."""
    sources = source, part.rpartition("#")[0] or source
    return [str(path) for one in sources for paths in _layout(one).values() for path in paths]


def _files(source: str, key: str) -> list[Path]:
    if key in (layout := _layout(source)):
        return layout[key]
    folder, _ = _opened(source)
    names = [path.relative_to(folder).as_posix() for path in sorted(folder.rglob("*")) if path.is_file()]
    found = f"no {key} among {shorten(', '.join(layout or names), LONGEST_LIST)}"
    other = f"if another dataset has them: `hf: NAME-qrels@COMMIT#{key.removeprefix(QRELS)}`"
    fix = suggest(key, layout, other if key.startswith(QRELS) else f"rename or convert its files; {PARTS}")
    raise input_error(source, found, EXPECTED, fix)


@cache
def _opened(source: str) -> tuple[Path, str]:
    """Find or fetch a source, for which the hub is asked once; return its folder, and the name of the part, or ""."""
    name, _, part = (source, "", "") if Path(source).is_dir() else source.partition("#")
    if Path(name).is_dir():
        return Path(name), part
    if not (match := ON_HUB.fullmatch(name)):
        expected = "a folder, or NAME@COMMIT of a dataset on Hugging Face, with the 40 hexadecimal digits of the commit"
        raise input_error(name, "no such folder", expected, "fix the path, or name a commit")
    fix = "check name, commit and network, or name a local folder"
    wanted = [f"{part}-*", f"{part}/*", f"*/{part}-*", f"*/{part}.*", *WANTED[2:]] if part else WANTED
    return fetch_snapshot(match[1], match[2], "a dataset on the hub", fix, wanted, kind="dataset"), part


def _layout(source: str) -> dict[str, list[Path]]:
    """Return the files in order, by what is in them: corpus, queries, or qrels/SPLIT."""
    (folder, part), layout = _opened(source), defaultdict(list)
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        own = name.removeprefix(f"{part}-").removeprefix(f"{part}/") if part else name
        if not path.is_file():
            continue
        if match := TEXTS.fullmatch(own):
            if not part or own != name or match[2] == part:
                layout[match[1]].append(path)
        elif match := JUDGEMENTS.fullmatch(own):
            layout[QRELS + match[1]].append(path)
    return {key: _of_one_format(source, paths) for key, paths in layout.items()}


def _of_one_format(source: str, paths: list[Path]) -> list[Path]:
    """Choose the files of the first format, since some datasets have the same records in several.

    :raises InputError: for lost parts, or several collections.
    """
    chosen = [path for path in paths if path.suffix == paths[0].suffix]
    if others := [str(path) for path in paths if path not in chosen]:
        log.warning("%s is read, but not %s", paths[0], ", ".join(others))
    counts = Counter(match.groups() for path in chosen if (match := PART.match(str(path))))
    for (name, total), count in counts.items():
        if count != int(total):
            raise input_error(name, f"{count} parts", f"{int(total)}", "fetch all of them")
    if len(names := sorted(Path(name).name for name, _ in counts)) > 1:
        found, expected = f"several in one: {shorten(', '.join(names), LONGEST_LIST)}", f"one, as {source}#{names[0]}"
        raise input_error(source, found, expected, "name one")
    return chosen

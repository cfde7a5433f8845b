"""What is odd in a collection and its splits: found in one stream of the passages, of which 8 bytes each are kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.cleaning import plain
from cort.formats.duplicates import numbers_of, twins_of
from cort.formats.ids import string_bytes
from cort.formats.records import Integers
from cort.formats.tables import PASSAGES, QRELS, QUERIES, count_rows, iter_batches, read_table

# So many passages of each batch tell the script; longer texts with nothing but blanks are not looked for.
SAMPLE, BLANK = 4096, 64
LATIN = frozenset({"en", "da", "de", "es", "fi", "fr", "hu", "id", "it", "nl", "no", "pl", "pt", "sv", "tr"})
# Shares of a collection or split from which something is worth a line.
FEW, SOME = 0.01, 0.05

#: kind, split, query_id, doc_id, and another id that it is about; ids may be empty
Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Finding:
    """One line; `kind` names its ids in the table, `warns` is whether numbers may mislead because of it."""

    kind: str
    text: str
    warns: bool = False


#: lines, each followed by the rows of its ids
Found = Iterator[Finding | Row]


@dataclass(frozen=True)
class Split:
    """The judgements of a split, and its queries: id -> text, as it is compared."""

    name: str
    texts: dict[str, str]
    qrels: pa.Table

    @classmethod
    def read(cls, name: str, queries: str, qrels: str) -> Split:
        """Read its tables."""
        table = read_table(queries, QUERIES)
        texts = zip(table["query_id"].to_pylist(), plain(table["text"]).to_pylist(), strict=True)
        return cls(name, dict(texts), read_table(qrels, QRELS))


@dataclass
class PassageCounts:
    """What one stream of the passages shows.

    :ivar longer: for each limit, how many have more words.
    :ivar letters: of a sample, how many have letters, and how many more letters of other scripts than of the Latin one.
    :ivar own: for each split, the queries with the id of a passage that is the query or contains it.
    :ivar others: for each split, how many passages have the id of a query alone.
    :ivar twins: doc_id -> first passage with the same text, of passages whose text occurs again.
    """

    count: int = 0
    empty: list[str] = field(default_factory=list)
    longer: dict[int, int] = field(default_factory=dict)
    letters: Integers = field(default_factory=lambda: np.zeros(2, np.int64))
    own: dict[str, set[str]] = field(default_factory=dict)
    others: Counter[str] = field(default_factory=Counter)
    twins: dict[str, str] = field(default_factory=dict)


def read_passages(path: str, splits: Sequence[Split], limits: Sequence[int]) -> PassageCounts:
    """Stream the passages, then the ids of those whose texts occur again."""
    found = PassageCounts(longer=dict.fromkeys(limits, 0), own={split.name: set() for split in splits})
    query_ids = {query_id for split in splits for query_id in split.texts}
    # Equal texts have equal numbers; 0 is no number, but that of passages without text, which are counted as such.
    numbers = np.zeros(count_rows(path, PASSAGES), np.uint64)
    for batch in iter_batches(path, PASSAGES):
        ids, texts = batch["doc_id"], batch["text"]
        short = pc.less(pc.binary_length(texts), BLANK)
        blank = pc.and_(short, pc.equal(pc.utf8_trim_whitespace(pc.if_else(short, texts, "x")), ""))
        found.empty += ids.filter(blank).to_pylist()
        blanks = _count_blanks(texts) if limits else np.empty(0)
        for limit in limits:
            found.longer[limit] += int(np.count_nonzero(blanks >= limit))
        found.letters += _letters(texts.slice(0, SAMPLE))
        rows = [row for row, doc_id in enumerate(ids.to_pylist()) if doc_id in query_ids]
        known = batch.take(pa.array(rows, "int64"))
        for doc_id, text in zip(known["doc_id"].to_pylist(), plain(known["text"]).to_pylist(), strict=True):
            _compare_with_queries(found, splits, doc_id, text)
        own = numbers[found.count : found.count + len(batch)]
        own[:] = numbers_of(texts)
        own[blank.to_numpy(zero_copy_only=False)] = 0
        found.count += len(batch)
    found.twins = twins_of(path, numbers)
    return found


def _count_blanks(texts: pa.Array) -> Integers:
    """Count the spaces of each text."""
    data, offsets = string_bytes(texts)
    return np.diff(np.searchsorted(np.flatnonzero(data == ord(" ")), offsets))


def _compare_with_queries(found: PassageCounts, splits: Sequence[Split], doc_id: str, text: str) -> None:
    """Tell whether the queries with the id of a passage are in its text."""
    for split in splits:
        query = split.texts.get(doc_id)
        if query and query in text:
            found.own[split.name].add(doc_id)
        elif query is not None:
            found.others[split.name] += 1


def _letters(texts: pa.Array) -> Integers:
    """Count texts with letters, and those that have more letters of other scripts than Latin ones."""
    others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    foreign = pc.count_substring_regex(others, r"[^\p{Latin}\P{L}]")
    latin = pc.count_substring_regex(others, r"\p{Latin}")
    with_letters = pc.sum(pc.match_substring_regex(texts, r"\pL")).as_py() or 0
    return np.array([with_letters, pc.sum(pc.greater(foreign, latin)).as_py() or 0])


def describe_passages(found: PassageCounts, limits: Mapping[str, int], languages: Mapping[str, str]) -> Found:
    """Say what is odd about the passages."""
    yield Finding("", _number(found.count, "passage", "passages"))
    if found.empty:
        yield Finding("empty", f"{_number(len(found.empty), 'passage has', 'passages have')} no text")
        yield from (("empty", "", "", doc_id, "") for doc_id in found.empty)
    if found.twins:
        texts = _number(len(set(found.twins.values())), "text", "texts")
        yield Finding("identical", f"{len(found.twins):,} passages share their text with others ({texts})")
        yield from (("identical", "", "", *pair) for pair in found.twins.items())
    for name, limit in limits.items():
        if (share := found.longer[limit] / max(found.count, 1)) >= FEW:
            text = f"at least {share:.0%} of the passages are longer than {name} reads: more words than {limit} tokens"
            yield Finding("", text)
    other = float(found.letters[1] / max(found.letters[0], 1))
    for name, language in languages.items():
        is_latin = language in LATIN
        script, share = ("another script than Latin", other) if is_latin else ("the Latin script", 1 - other)
        if share >= SOME:
            text = (
                f"about {share:.0%} of the passages are mainly in {script}, but {name} analyses the language {language}"
            )
            yield Finding("", text, is_latin or share > 0.5)


def describe_left_out(counts: Mapping[str, int]) -> Found:
    """Say which files and rows, and how many words of files, were left out when the collection was read."""
    for name, count in counts.items():
        if name.startswith(("files: ", "rows ", "words left out: ")):
            yield Finding("", f"{name}: {count:,}")


def describe_queries(split: Split) -> Found:
    """Say how many queries a split has, and how they are judged."""
    count, judged = len(split.texts), pc.count_distinct(split.qrels["query_id"]).as_py()
    relevant = split.qrels.filter(pc.greater(split.qrels["relevance"], 0))
    without = judged - pc.count_distinct(relevant["query_id"]).as_py()
    grades = Counter(split.qrels["relevance"].to_pylist())
    listed = ", ".join(f"{number:,} of grade {grade}" for grade, number in sorted(grades.items()))
    counted = (
        _number(count, "query", "queries"),
        f"{judged:,} of them judged" * (judged < count),
        f"{without:,} without a relevant document" * bool(without),
        f"{_number(split.qrels.num_rows, 'judgement', 'judgements')} ({listed})" * bool(grades),
    )
    yield Finding("", f"{split.name}: {', '.join(filter(None, counted))}")


def find_twins(split: Split, twins: Mapping[str, str]) -> Found:
    """Find relevant documents whose text another document has that is not judged for the query."""
    groups: dict[str, list[str]] = {}
    for doc_id, first in twins.items():
        groups.setdefault(first, []).append(doc_id)
    chosen = split.qrels.filter(pc.is_in(split.qrels["doc_id"], value_set=pa.array(twins, "string"))).to_pylist()
    judged = {(row["query_id"], row["doc_id"]) for row in chosen}
    rows = [
        ("unjudged twin", split.name, row["query_id"], row["doc_id"], twin)
        for row in chosen
        if row["relevance"] > 0
        for twin in groups[twins[row["doc_id"]]]
        if (row["query_id"], twin) not in judged
    ]
    if rows:
        queries = _number(len({row[2] for row in rows}), "query has", "queries have")
        text = f"{split.name}: {queries} a relevant document whose text another one has that is not judged"
        yield Finding("unjudged twin", text)
        yield from rows


def find_own(split: Split, found: PassageCounts, ignored: bool) -> Found:
    """Find queries that are documents: with the same id, and text that is the query or contains it."""
    own = [query_id for query_id in split.texts if query_id in found.own[split.name]]
    others, many = found.others[split.name], len(own) > FEW * len(split.texts)
    if ignored and others > len(own):
        text = f"{split.name}: ignore_own drops {others:,} documents that only have the id of a query, not its text"
        yield Finding("", text, True)
    elif own and not ignored:
        count = _number(len(own), "query is a document", "queries are documents")
        advice = "; systems find them first, so set `ignore_own: true`, as BEIR does" if many else ""
        yield Finding("own document", f"{split.name}: {count} with the same id{advice}", many)
    yield from (("own document", split.name, query_id, query_id, "") for query_id in own)


def find_shared(first: Split, second: Split, apart: bool) -> Found:
    """Find queries of the second split whose texts are also in the first, from which systems learn, if `apart`."""
    kind, asked = f"query of {second.name} in {first.name}", {*second.texts.values()}
    texts = {text: query_id for query_id, text in first.texts.items() if text in asked}
    shared = {query_id: texts[text] for query_id, text in second.texts.items() if text and text in texts}
    if shared:
        count = f"{len(shared):,} of {len(second.texts):,} queries"
        advice = f", which systems learn from; leave them out by `without: {second.name}`" if apart else ""
        yield Finding(kind, f"{second.name}: {count} also in {first.name}{advice}", apart)
        yield from ((kind, second.name, query_id, "", other) for query_id, other in shared.items())


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"

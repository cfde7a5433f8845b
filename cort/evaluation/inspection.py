"""What is odd in a collection and its splits: found in one stream of the passages, without an object per passage."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.cleaning import plain
from cort.formats.ids import hashes
from cort.formats.records import Integers
from cort.formats.tables import PASSAGES, QRELS, QUERIES, iter_batches, read_table

# So many passages of each batch tell the script; longer texts with nothing but blanks are not looked for.
SAMPLE, BLANK = 4096, 64
LATIN = frozenset({"en", "da", "de", "es", "fi", "fr", "hu", "id", "it", "nl", "no", "pl", "pt", "sv", "tr"})
# Shares of a collection or split from which something is worth a line.
FEW, SOME = 0.01, 0.05
IDS = pa.schema([PASSAGES.field("doc_id")])

#: kind, split, query_id, doc_id, and another id that it is about; ids may be empty
Row = tuple[str, str, str, str, str]


@dataclass(frozen=True)
class Finding:
    """One line; `kind` names its ids in the table, `warns` is whether numbers may mislead because of it."""

    kind: str
    text: str
    warns: bool = False


@dataclass(frozen=True)
class Split:
    """The queries and judgements of a split."""

    name: str
    queries: pa.Table
    qrels: pa.Table
    texts: pa.ChunkedArray

    @classmethod
    def read(cls, name: str, queries: str, qrels: str) -> Split:
        """Read its tables."""
        table = read_table(queries, QUERIES)
        return cls(name, table, read_table(qrels, QRELS), plain(table["text"]))

    def by_text(self) -> dict[str, str]:
        """Map each text, as it is compared, to the id of a query."""
        return dict(zip(self.texts.to_pylist(), self.queries["query_id"].to_pylist(), strict=True))


@dataclass
class Passages:
    """What one stream of the passages shows.

    :ivar longer: for each limit, how many have more words.
    :ivar letters: of a sample, how many have letters, and how many more letters of other scripts than of the Latin one.
    :ivar texts: of the passages that have the id of a query.
    :ivar twins: doc_id -> first passage with the same text, of passages whose text occurs again.
    """

    count: int = 0
    empty: list[str] = field(default_factory=list)
    longer: dict[int, int] = field(default_factory=dict)
    letters: Integers = field(default_factory=lambda: np.zeros(2, np.int64))
    texts: dict[str, str] = field(default_factory=dict)
    twins: dict[str, str] = field(default_factory=dict)


def read_passages(path: str, query_ids: pa.Array, limits: Sequence[int]) -> Passages:
    """Stream the passages, then the ids of those whose texts occur again."""
    found = Passages(longer=dict.fromkeys(limits, 0))
    numbers = []
    for batch in iter_batches(path, PASSAGES):
        ids, texts = batch["doc_id"], batch["text"]
        found.count += len(ids)
        short = pc.less(pc.binary_length(texts), BLANK)
        blank = pc.and_(short, pc.equal(pc.utf8_trim_whitespace(pc.if_else(short, texts, "x")), ""))
        found.empty += ids.filter(blank).to_pylist()
        words = pc.add(pc.count_substring(texts, " "), 1)
        for limit in limits:
            found.longer[limit] += pc.sum(pc.greater(words, limit)).as_py() or 0
        found.letters += _letters(texts.slice(0, SAMPLE))
        known = batch.filter(pc.is_in(ids, value_set=query_ids))
        found.texts.update(zip(known["doc_id"].to_pylist(), plain(known["text"]).to_pylist(), strict=True))
        number = hashes(texts)
        # Empty texts are counted as such.
        number[blank.to_numpy(zero_copy_only=False)] = 0
        numbers.append(number)
    found.twins = _twins(path, np.concatenate([np.empty(0, np.uint64), *numbers]))
    return found


def _letters(texts: pa.Array) -> Integers:
    """Count texts with letters, and those that have more letters of other scripts than Latin ones."""
    others = texts.filter(pc.invert(pc.string_is_ascii(texts)))
    foreign = pc.count_substring_regex(others, r"[^\p{Latin}\P{L}]")
    latin = pc.count_substring_regex(others, r"\p{Latin}")
    with_letters = pc.sum(pc.match_substring_regex(texts, r"\pL")).as_py() or 0
    return np.array([with_letters, pc.sum(pc.greater(foreign, latin)).as_py() or 0])


def _twins(path: str, numbers: npt.NDArray[np.uint64]) -> dict[str, str]:
    """Map the ids of passages with equal numbers to the first of these; 0 is no number."""
    ordered = np.sort(numbers)
    again = np.unique(ordered[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] > 0)])
    del ordered
    first: dict[int, str] = {}
    twins: dict[str, str] = {}
    row = 0
    for batch in iter_batches(path, IDS) if len(again) else ():
        own = numbers[row : row + len(batch)]
        rows = np.flatnonzero(np.isin(own, again))
        row += len(batch)
        for number, doc_id in zip(own[rows].tolist(), batch["doc_id"].take(pa.array(rows)).to_pylist(), strict=True):
            twins[doc_id] = first.setdefault(number, doc_id)
    return twins


def describe_passages(found: Passages, limits: Mapping[str, int], languages: Mapping[str, str]) -> Iterator[Finding]:
    """Say what is odd about the passages."""
    yield Finding("", _number(found.count, "passage", "passages"))
    if found.empty:
        yield Finding("empty", f"{_number(len(found.empty), 'passage has', 'passages have')} no text")
    if found.twins:
        texts = len(set(found.twins.values()))
        text = f"{len(found.twins):,} passages share their text with others ({_number(texts, 'text', 'texts')})"
        yield Finding("identical", text)
    for name, limit in limits.items():
        if (share := found.longer[limit] / max(found.count, 1)) >= FEW:
            text = f"at least {share:.0%} of the passages are longer than {name} reads: more words than {limit} tokens"
            yield Finding("", text)
    share = float(found.letters[1] / max(found.letters[0], 1))
    for name, language in languages.items():
        other = f"but {name} analyses the language {language}"
        if language in LATIN and share >= SOME:
            yield Finding(
                "", f"about {share:.0%} of the passages are mainly in another script than Latin, {other}", True
            )
        elif language not in LATIN and share < 1 - SOME:
            yield Finding(
                "", f"about {1 - share:.0%} of the passages are mainly in the Latin script, {other}", share < 0.5
            )


def describe_queries(split: Split) -> Iterator[Finding]:
    """Say how many queries a split has, and how they are judged."""
    judged = pc.count_distinct(split.qrels["query_id"]).as_py()
    relevant = split.qrels.filter(pc.greater(split.qrels["relevance"], 0))
    without = judged - pc.count_distinct(relevant["query_id"]).as_py()
    grades = sorted(pc.value_counts(split.qrels["relevance"]).to_pylist(), key=lambda count: int(count["values"]))
    parts = [
        _number(split.queries.num_rows, "query", "queries"),
        f"{judged:,} of them judged" if judged < split.queries.num_rows else "",
    ]
    parts.append(f"{without:,} without a relevant document" if without else "")
    listed = ", ".join(f"{count['counts']:,} of grade {count['values']}" for count in grades)
    parts.append(f"{_number(split.qrels.num_rows, 'judgement', 'judgements')} ({listed})" if grades else "")
    yield Finding("", f"{split.name}: {', '.join(filter(None, parts))}")


def find_twins(split: Split, twins: Mapping[str, str]) -> tuple[list[Finding], list[Row]]:
    """Find relevant documents whose text another document has that is not judged for the query."""
    groups: dict[str, list[str]] = {}
    for doc_id, first in twins.items():
        groups.setdefault(first, []).append(doc_id)
    copied = pa.array(twins, "string")
    chosen = split.qrels.filter(pc.is_in(split.qrels["doc_id"], value_set=copied)).to_pylist()
    judged = {(row["query_id"], row["doc_id"]) for row in chosen}
    rows = [
        ("unjudged twin", split.name, row["query_id"], row["doc_id"], twin)
        for row in chosen
        if row["relevance"] > 0
        for twin in groups[twins[row["doc_id"]]]
        if (row["query_id"], twin) not in judged
    ]
    count = len({row[2] for row in rows})
    queries = _number(count, "query has", "queries have")
    text = f"{split.name}: {queries} a relevant document whose text another one has that is not judged"
    return [Finding("unjudged twin", text)] if rows else [], rows


def find_own(split: Split, texts: Mapping[str, str], ignored: bool) -> tuple[list[Finding], list[Row]]:
    """Find queries that are documents: with the same id, and text that is the query or contains it."""
    pairs = zip(split.queries["query_id"].to_pylist(), split.texts.to_pylist(), strict=True)
    known = [(query_id, text) for query_id, text in pairs if query_id in texts]
    own = [query_id for query_id, text in known if text and text in texts[query_id]]
    rows = [("own document", split.name, query_id, query_id, "") for query_id in own]
    count = _number(len(own), "query is a document", "queries are documents")
    if ignored:
        others = len(known) - len(own)
        text = f"{split.name}: ignore_own drops {others:,} documents that only have the id of a query, not its text"
        return [Finding("", text, True)] if others > len(own) else [], rows
    many = len(own) > FEW * len(split.texts)
    advice = "; systems find them first, so set `ignore_own: true`, as BEIR does" if many else ""
    return [Finding("own document", f"{split.name}: {count} with the same id{advice}", many)] if own else [], rows


def find_shared(first: Split, second: Split, apart: bool) -> tuple[list[Finding], list[Row]]:
    """Find queries of the second split whose texts are also in the first, from which systems learn, if `apart`."""
    texts = first.by_text()
    shared = zip(second.queries["query_id"].to_pylist(), second.texts.to_pylist(), strict=True)
    rows = [
        (f"query of {second.name} in {first.name}", second.name, query_id, "", texts[text])
        for query_id, text in shared
        if text and text in texts
    ]
    if not rows:
        return [], []
    count = f"{len(rows):,} of {second.queries.num_rows:,} queries"
    advice = f", which systems learn from; leave them out by `without: {second.name}`" if apart else ""
    return [Finding(rows[0][0], f"{second.name}: {count} also in {first.name}{advice}", apart)], rows


def _number(count: int, one: str, many: str) -> str:
    return f"{count:,} {one if count == 1 else many}"

"""Find the queries on which two systems disagree most, with the passages that show why (Table 6 of the CoRT paper).

The disagreement of a query is the difference of the reciprocal ranks that the two runs give to their best-ranked
relevant passage (0 where none was retrieved). The queries with the largest advantage of either side are kept.

Reads: two runs, the queries, the judgements and the passages (streamed; only the texts shown are kept).
Writes: one JSON file with the queries, the relevant passage and its two ranks, and the top passage of each system.
Usage: python -m cort.disagreements --first cort.trec --second bm25.trec --first-name cort --second-name bm25
       --split test --queries queries.parquet --qrels qrels.parquet --passages passages.parquet --number 5
       --output disagreements.json
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.runs import RunByQuery, read_run
from cort.formats.tables import PASSAGES, QRELS, QUERIES, iter_batches, read_table
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.files import write_text
from cort.system.progress import track

log = logging.getLogger(__name__)

Judgements: TypeAlias = Mapping[str, Mapping[str, int]]
"""query_id -> doc_id -> relevance"""
JSON: TypeAlias = "dict[str, JSON] | list[JSON] | str | int | float | None"


class Disagreement(NamedTuple):
    """One query seen by two systems; ranks are counted from 1, None where the passage was not retrieved.

    `doc_id` is the best-ranked relevant passage of the system that has the advantage.
    """

    query_id: str
    advantage: float
    doc_id: str
    rank_first: int | None
    rank_second: int | None
    top_first: str | None
    top_second: str | None


def compare(
    query_id: str, first: Sequence[str], second: Sequence[str], judged: Mapping[str, int], relevance_level: int = 1
) -> Disagreement | None:
    """Compare two rankings (doc ids, best first) of one query; None when neither has the advantage.

    :param judged: doc_id -> relevance; grades below `relevance_level` count as not relevant.
    :return: a positive advantage where `first` ranks a relevant passage higher, a negative one where `second` does.
    """
    best_first = _best_relevant(first, judged, relevance_level)
    best_second = _best_relevant(second, judged, relevance_level)
    advantage = _reciprocal(best_first) - _reciprocal(best_second)
    if advantage == 0:
        return None
    if advantage > 0:
        assert best_first is not None  # noqa: S101  # a positive difference has a positive minuend
        doc_id = first[best_first - 1]
    else:
        assert best_second is not None  # noqa: S101  # and a negative one a positive subtrahend
        doc_id = second[best_second - 1]
    return Disagreement(
        query_id,
        advantage,
        doc_id,
        _rank(first, doc_id),
        _rank(second, doc_id),
        first[0] if first else None,
        second[0] if second else None,
    )


def _best_relevant(ranking: Sequence[str], judged: Mapping[str, int], relevance_level: int) -> int | None:
    for rank, doc_id in enumerate(ranking, start=1):
        if judged.get(doc_id, relevance_level - 1) >= relevance_level:
            return rank
    return None


def _reciprocal(rank: int | None) -> float:
    return 0.0 if rank is None else 1 / rank


def _rank(ranking: Sequence[str], doc_id: str) -> int | None:
    return ranking.index(doc_id) + 1 if doc_id in ranking else None


def compare_runs(
    first: RunByQuery, second: RunByQuery, judgements: Judgements, relevance_level: int = 1
) -> Iterator[Disagreement]:
    """Yield what `compare` finds for each judged query, in the order of `judgements`."""
    for query_id, judged in judgements.items():
        found = compare(query_id, first[query_id], second[query_id], judged, relevance_level)
        if found is not None:
            yield found


def largest(found: Iterable[Disagreement], number: int) -> list[Disagreement]:
    """Take the `number` largest advantages of the first system, then those of the second; ties by query id."""
    by_size = sorted(found, key=lambda one: (-abs(one.advantage), one.query_id))
    of_first = [one for one in by_size if one.advantage > 0]
    of_second = [one for one in by_size if one.advantage < 0]
    return of_first[:number] + of_second[:number]


def read_judgements(path: str | Path) -> dict[str, dict[str, int]]:
    """Read judgements as query_id -> doc_id -> relevance, queries in the order of the file."""
    judgements: dict[str, dict[str, int]] = {}
    table = read_table(path, QRELS)
    columns = (table[name].to_pylist() for name in QRELS.names)
    for query_id, doc_id, relevance in zip(*columns, strict=True):
        judgements.setdefault(query_id, {})[doc_id] = relevance
    return judgements


def select_texts(path: str | Path, schema: pa.Schema, ids: Iterable[str]) -> dict[str, str]:
    """Stream a table of (id, text) and keep the texts of `ids`; an id that is not there is refused."""
    wanted = pa.array(sorted(set(ids)), pa.string())
    name = schema.names[0]
    texts: dict[str, str] = {}
    for batch in track(iter_batches(path, schema), None, "batches read"):
        kept = batch.filter(pc.is_in(batch[name], value_set=wanted))
        texts.update(zip(kept[name].to_pylist(), kept["text"].to_pylist(), strict=True))
    missing = [one for one in wanted.to_pylist() if one not in texts]
    if missing:
        raise input_error(
            path, f"no {name} {shorten(missing[0])}", "every id that runs and judgements name", "name the matching file"
        )
    return texts


def describe(
    one: Disagreement, judged: Mapping[str, int], relevance_level: int, queries: Mapping[str, str],
    passages: Mapping[str, str],
) -> JSON:  # fmt: skip
    """One example as JSON: relevance is true, false (judged not relevant) or null (never judged)."""

    def top(doc_id: str | None) -> JSON:
        if doc_id is None:
            return None
        grade = judged.get(doc_id)
        relevant = None if grade is None else grade >= relevance_level
        return {"doc_id": doc_id, "text": passages[doc_id], "relevant": relevant}

    return {
        "query_id": one.query_id,
        "query": queries[one.query_id],
        "advantage": one.advantage,
        "relevant": {
            "doc_id": one.doc_id,
            "text": passages[one.doc_id],
            "rank_first": one.rank_first,
            "rank_second": one.rank_second,
        },
        "top_first": top(one.top_first),
        "top_second": top(one.top_second),
    }


def build_parser() -> argparse.ArgumentParser:
    """Describe the options."""
    parser = cli.make_parser("cort.disagreements", __doc__)
    parser.add_argument("--first", metavar="RUN", required=True, help="run of one system")
    parser.add_argument("--second", metavar="RUN", required=True, help="run of the other")
    parser.add_argument("--first-name", metavar="NAME", required=True, help="what to call the first system")
    parser.add_argument("--second-name", metavar="NAME", required=True, help="what to call the second system")
    parser.add_argument("--queries", metavar="PARQUET", required=True)
    parser.add_argument("--qrels", metavar="PARQUET", required=True)
    parser.add_argument("--passages", metavar="PARQUET", required=True)
    parser.add_argument("--split", required=True, help="name of the split, written to the output")
    parser.add_argument("--number", type=int, default=5, help="examples per side (default 5)")
    parser.add_argument("--relevance-level", type=int, default=1, help="lowest grade that is relevant (default 1)")
    parser.add_argument("--output", metavar="JSON", required=True)
    return parser


def stage(args: argparse.Namespace) -> None:
    """Compare the runs, fetch the texts of the largest disagreements, write them."""
    _check(args)
    judgements = read_judgements(args.qrels)
    first, second = read_run(args.first).by_query(), read_run(args.second).by_query()
    found = list(compare_runs(first, second, judgements, args.relevance_level))
    chosen = largest(found, args.number)
    queries = select_texts(args.queries, QUERIES, [one.query_id for one in chosen])
    shown = [doc_id for one in chosen for doc_id in (one.doc_id, one.top_first, one.top_second) if doc_id is not None]
    passages = select_texts(args.passages, PASSAGES, shown)
    content: JSON = {
        "split": args.split,
        "first": args.first_name,
        "second": args.second_name,
        "queries": len(judgements),
        "better_first": sum(one.advantage > 0 for one in found),
        "better_second": sum(one.advantage < 0 for one in found),
        "examples": [
            describe(one, judgements[one.query_id], args.relevance_level, queries, passages) for one in chosen
        ],
    }
    write_text(args.output, json.dumps(content, ensure_ascii=False, indent=2) + "\n")
    log.info("%d of %d queries disagree, %d examples written", len(found), len(judgements), len(chosen))


def _check(args: argparse.Namespace) -> None:
    if args.number < 1:
        raise input_error("--number", str(args.number), "at least 1", "give how many examples to show per side")
    if args.first_name == args.second_name:
        raise input_error(
            "--second-name", f"{shorten(args.first_name)} again", "two different names", "give each run its own"
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; its exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

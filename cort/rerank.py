"""Re-rank the first candidates of every query by the scores of a re-ranker; the others keep their order below.

Candidates are in the order of their run; the first `depth` of them are ordered by (-re-ranker's score, doc_id).

Reads:  run.trec (candidates), scores.parquet (every candidate pair scored once)
Writes: run.trec
Usage:  python -m cort.rerank --candidates run.trec --scores scores.parquet --depth 1000 --tag NAME
            --output reranked.trec
"""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.ids import positions
from cort.formats.records import Ranking
from cort.formats.runs import Run, order, read_run, strictly_decreasing, write_run
from cort.system import cli
from cort.system.errors import input_error, shorten

log = logging.getLogger(__name__)

Scores = npt.NDArray[np.float64]


def rerank(candidates: Ranking, scores: Scores, depth: int) -> Ranking:
    """Order the first `depth` candidates by (-score, doc_id) and leave the rest as they are below them.

    The result's scores are strictly decreasing: the re-ranker's own as far as it is asked, lower ones after that.

    :param scores: the re-ranker's, one per candidate; only the first `depth` are read.
    """
    head = np.asarray(scores[:depth], dtype=np.float64)
    by = order(candidates.doc_ids[:depth], head)
    doc_ids = [candidates.doc_ids[position] for position in by] + candidates.doc_ids[depth:]
    tail = head.min(initial=np.inf) - np.arange(1.0, len(doc_ids) - len(head) + 1)
    return Ranking(candidates.query_id, doc_ids, strictly_decreasing(np.concatenate([head[by], tail])))


def rerank_run(run: Run, scores: Scores, depth: int) -> Iterator[Ranking]:
    """Re-rank every query.

    :param scores: the re-ranker's, one per result of `run`, as `candidate_scores` gives them.
    """
    for position, ranking in enumerate(run):
        start, end = int(run.offsets[position]), int(run.offsets[position + 1])
        yield rerank(ranking, scores[start:end], depth)


def candidate_scores(run: Run, table: pa.Table, depth: int, source: str | Path) -> Scores:
    """Look up the re-ranker's score of every result of `run`; NaN below `depth` where there is none.

    :param table: pairs and scores (`tables.SCORES`), read from `source`.
    :raises InputError: a pair scored twice, a score that is no finite number, one of the first `depth` without a score.
    """
    _refuse_bad_scores(table, source)
    query_ids, doc_ids = pa.array(run.query_ids, pa.string()), pc.unique(run.doc_ids)
    wanted = run.query_numbers() * len(doc_ids) + positions(run.doc_ids, doc_ids)
    # Pairs of other queries or documents get the number -1 and match nothing.
    scored_queries, scored_docs = positions(table["query_id"], query_ids), positions(table["doc_id"], doc_ids)
    known = (scored_queries >= 0) & (scored_docs >= 0)
    pairs = np.where(known, scored_queries * len(doc_ids) + scored_docs, -1)
    by = np.argsort(pairs, kind="stable")
    _refuse_repeated_pairs(pairs, by, table, source)
    place = np.searchsorted(pairs, wanted, sorter=by)
    found = np.full(len(wanted), np.nan)
    inside = np.flatnonzero(place < len(by))
    rows = by[place[inside]]
    hits = pairs[rows] == wanted[inside]
    found[inside[hits]] = table["score"].to_numpy()[rows[hits]]
    _refuse_missing_scores(run, found, depth, source)
    return found


def _refuse_bad_scores(table: pa.Table, source: str | Path) -> None:
    bad = np.flatnonzero(~np.isfinite(table["score"].to_numpy()))
    if len(bad):
        row = int(bad[0])
        found = f"the score {table['score'][row].as_py()}"
        raise input_error(source, found, "a finite number", "score the candidates again", row + 1)


def _refuse_repeated_pairs(
    pairs: npt.NDArray[np.int64], by: npt.NDArray[np.intp], table: pa.Table, source: str | Path
) -> None:
    ordered = pairs[by]
    repeated = by[1:][(ordered[1:] == ordered[:-1]) & (ordered[1:] >= 0)]
    if len(repeated):
        row = int(repeated.min())
        query_id, doc_id = table["query_id"][row].as_py(), table["doc_id"][row].as_py()
        found = f"document {shorten(doc_id)} scored again for query {shorten(query_id)}"
        raise input_error(source, found, "each pair once", "score the candidates again", row + 1)


def _refuse_missing_scores(run: Run, scores: Scores, depth: int, source: str | Path) -> None:
    missing = np.flatnonzero(np.isnan(scores) & (run.ranks() <= depth))
    if len(missing):
        row = int(missing[0])
        query_id = run.query_ids[int(np.searchsorted(run.offsets, row, side="right")) - 1]
        found = f"no score for document {shorten(run.doc_ids[row].as_py())} of query {shorten(query_id)}"
        expected = f"the first {depth} candidates scored ({len(missing)} are not)"
        raise input_error(source, found, expected, "score these candidates, or lower the depth")


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.rerank", __doc__)
    parser.add_argument("--candidates", required=True, metavar="TREC", help="the run to re-rank")
    parser.add_argument("--scores", required=True, metavar="PARQUET", help="query_id, doc_id, score")
    parser.add_argument("--depth", type=int, required=True, metavar="N", help="candidates re-ranked per query")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Read, look up scores, re-rank, write."""
    if args.depth < 1:
        raise input_error("--depth", str(args.depth), "1 or more", "give the number of candidates to re-rank")
    run = read_run(args.candidates)
    scores = candidate_scores(run, tables.read_table(args.scores, tables.SCORES), args.depth, args.scores)
    lines = write_run(args.output, rerank_run(run, scores, args.depth), args.tag)
    reranked = int(np.minimum(np.diff(run.offsets), args.depth).sum())
    log.info("%d queries, %d of %d candidates re-ranked", len(run), reranked, lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

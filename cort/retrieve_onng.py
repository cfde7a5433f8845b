"""Approximate retrieval from an ONNG index (CoRT paper, section 4.5.3); a larger `epsilon` finds more and takes longer.

A search follows edges to passages within (1 + epsilon) times the distance of the last result so far. Scores are inner
products, computed from the index's distances (1 - d^2 / 2 for unit vectors): those of exact retrieval but for rounding.

Reads:  embedding shards of the queries, the folder that `onng` wrote
Writes: run.trec
Usage:  python -m cort.retrieve_onng --queries queries.arrow --index onng --epsilon 0.1 --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import argparse
import itertools
import logging
import multiprocessing
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort import cli
from cort.errors import input_error
from cort.formats.embeddings import Shard, open_shards
from cort.formats.runs import order, write_run
from cort.onng import Meta, open_index, refuse_other_lengths
from cort.progress import track
from cort.records import Ranking

log = logging.getLogger(__name__)

QUERIES_PER_BLOCK = 64

# Numbers, distances and seconds of one search; numbers are rows of the index.
Found = tuple[npt.NDArray[np.int64], npt.NDArray[np.float64], float]


def search_blocks(
    index: Any, blocks: Sequence[npt.NDArray[np.floating]], epsilon: float, depth: int, threads: int
) -> Iterator[Found]:
    """Search every query of every block; the results do not depend on `threads`."""
    if threads == 1 or len(blocks) < 2:
        for block in blocks:
            yield from _search_block(index, block, epsilon, depth)
        return
    # NGT searches one query at a time and holds Python's lock meanwhile. Forked processes share the index in memory.
    global _shared
    _shared = index
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(min(threads, len(blocks)), mp_context=context) as pool:
        for found in pool.map(_search_shared, blocks, itertools.repeat(epsilon), itertools.repeat(depth)):
            yield from found


def to_ranking(query_id: str, ids: pa.Array, found: Found) -> Ranking:
    """Name the results of one search and order them by (-inner product, doc_id)."""
    rows, distances, _ = found
    scores = 1.0 - distances**2 / 2
    doc_ids = ids.take(pa.array(rows)).to_pylist()
    by = order(doc_ids, scores)
    return Ranking(query_id, [doc_ids[position] for position in by], scores[by])


def refuse_other_queries(queries: Sequence[Shard], meta: Meta, index: str) -> None:
    """Check that the queries have the dimension of the index and length 1.

    :raises InputError: names the shard.
    """
    for shard in queries:
        if shard.dimension != meta.dimension:
            found, expected = f"{shard.dimension} dimensions", f"{meta.dimension} as in {index}"
            raise input_error(shard.path, found, expected, "encode the queries again")
        for _, vectors in shard.blocks():
            refuse_other_lengths(vectors, shard.path)


_shared: Any = None


def _search_shared(block: npt.NDArray[np.floating], epsilon: float, depth: int) -> list[Found]:
    return _search_block(_shared, block, epsilon, depth)


def _search_block(index: Any, block: npt.NDArray[np.floating], epsilon: float, depth: int) -> list[Found]:
    results: list[Found] = []
    for query in block.astype(np.float32):
        started = time.perf_counter()
        pairs = index.search(query, size=depth, epsilon=epsilon)
        seconds = time.perf_counter() - started
        rows, distances = zip(*pairs, strict=True) if pairs else ((), ())
        results.append((np.array(rows, dtype=np.int64), np.array(distances, dtype=np.float64), seconds))
    return results


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.retrieve_onng", __doc__)
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--index", required=True, metavar="FOLDER", help="the folder that `onng` wrote")
    parser.add_argument("--epsilon", type=float, default=0.1, metavar="E", help="above -1; 0 to 0.4 in the paper")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="results per query")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="processes that search")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open index and queries, search, write."""
    if args.depth < 1 or not -1 < args.epsilon < float("inf"):
        found = f"depth {args.depth}, epsilon {args.epsilon}"
        raise input_error("--depth, --epsilon", found, "a depth from 1 and an epsilon above -1", "mend the options")
    index, ids, meta = open_index(args.index)
    queries = open_shards(args.queries, model=meta.model)
    refuse_other_queries(queries, meta, args.index)
    batches = [block for shard in queries for block in shard.blocks()]
    query_ids = [query_id for some, _ in batches for query_id in some.to_pylist()]
    blocks = [
        vectors[at : at + QUERIES_PER_BLOCK]
        for _, vectors in batches
        for at in range(0, len(vectors), QUERIES_PER_BLOCK)
    ]
    seconds: list[float] = []

    def rankings() -> Iterator[Ranking]:
        results = search_blocks(index, blocks, args.epsilon, args.depth, args.threads)
        for query_id, found in zip(query_ids, track(results, len(query_ids), "queries"), strict=True):
            seconds.append(found[2])
            yield to_ranking(query_id, ids, found)

    lines = write_run(args.output, rankings(), args.tag)
    mean = 1000 * sum(seconds) / max(len(seconds), 1)
    log.info("%d queries, %d results, mean %.2f ms per query at epsilon %g", len(seconds), lines, mean, args.epsilon)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

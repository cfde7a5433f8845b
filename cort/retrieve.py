"""Exact retrieval: for each query the passages with the largest inner product, by (-score, doc_id).

A first pass in single precision finds every passage that can be among the best, with a margin for its rounding errors.
Those are scored again in double precision, each pair by itself and on the CPU, and rounded to single precision. The
result therefore depends neither on how the passages are divided into shards, nor on block sizes, threads
or device, and ties are resolved by doc id at the cut too.

Reads:  embedding shards of the queries and of the passages, of one model
Writes: run.trec
Usage:  python -m cort.retrieve --queries queries.arrow --passages 1-of-2.arrow 2-of-2.arrow --depth 1000 --threads 4
            --tag NAME --output run.trec
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort import cli
from cort.devices import lease
from cort.errors import input_error
from cort.formats.embeddings import Shard, all_ids, open_shards
from cort.formats.runs import write_run
from cort.progress import track
from cort.records import Ranking

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

Vectors = npt.NDArray[np.float32]

# Passages are read once per this many queries, whose best results so far stay in memory (depth x 8 bytes each).
QUERIES_PER_PASS = 8_192
# Passages per block = this many numbers / dimension: 64 MB.
NUMBERS_PER_BLOCK = 1 << 24
# Queries per product = this many scores / passages per block: 128 MB.
SCORES_PER_PRODUCT = 1 << 25
# Pairs scored again at a time: their doubles stay in a CPU's cache (768 dimensions: 0.6 us per pair, 2.1 with 4,096).
PAIRS_AT_ONCE = 512
# Products of longer vectors could exceed single precision.
LONGEST = 1e18

# A result is one integer: the score's bits above, 2^32 - 1 minus the place of its id in alphabetical order below.
# Larger is better: the largest integers are the first results by (-score, doc_id); no other comparison is needed.
LOW = (1 << 32) - 1
NOTHING = -(1 << 63)


class Matrix(NamedTuple):
    """The same vectors twice: in main memory, and where they are multiplied."""

    host: Vectors
    device: Tensor


def retrieve(queries: Sequence[Shard], passages: Sequence[Shard], depth: int, device: str = "cpu") -> Iterator[Ranking]:
    """Rank all passages for each query by inner product; yield the first `depth`, in the order of the queries.

    :param device: a torch device; the result does not depend on it.
    :raises InputError: for vectors with numbers that are not finite.
    """
    import torch

    # Other settings multiply with fewer bits than the margin allows for.
    torch.set_float32_matmul_precision("highest")
    ids = all_ids(passages).combine_chunks()
    by_id = pc.sort_indices(ids).to_numpy()
    places = np.empty(len(ids), dtype=np.int64)
    places[by_id] = np.arange(len(ids))
    sorted_ids = ids.take(pa.array(by_id))
    for query_ids, vectors in _joined(queries, QUERIES_PER_PASS):
        matrix = Matrix(vectors, torch.from_numpy(vectors).to(device))
        keys = _best_keys(matrix, passages, torch.from_numpy(places), depth)
        scores, positions = _decode(keys)
        for query_id, row, found in zip(query_ids.to_pylist(), scores, positions, strict=True):
            yield Ranking(query_id, sorted_ids.take(pa.array(found)).to_pylist(), row)


def _best_keys(queries: Matrix, passages: Sequence[Shard], places: Tensor, depth: int) -> Tensor:
    """Keys of the best results, best first; shape (queries, min(depth, passages))."""
    import torch

    device = queries.device.device
    rows = max(1, NUMBERS_PER_BLOCK // queries.host.shape[1])
    best = torch.full((len(queries.host), 0), NOTHING, device=device)
    norms = _norms(queries.device)
    seen = 0
    for _, vectors in track(_joined(passages, rows), -(-len(places) // rows), "blocks of passages"):
        block = Matrix(vectors, torch.from_numpy(vectors).to(device))
        block_places = places[seen : seen + len(vectors)].to(device)
        seen += len(vectors)
        margins = _margins(norms, block.device)
        step = max(1, SCORES_PER_PRODUCT // len(vectors))
        parts = []
        for at in range(0, len(best), step):
            some = slice(at, at + step)
            part = Matrix(queries.host[some], queries.device[some])
            parts.append(_merge(best[some], part, block, block_places, margins[some], depth))
        best = torch.cat(parts)
    return best


def _merge(best: Tensor, queries: Matrix, block: Matrix, places: Tensor, margins: Tensor, depth: int) -> Tensor:
    """Merge one block into the best keys so far, which have min(depth, passages seen) columns, as the result has."""
    import torch

    approximate = queries.device @ block.device.T  # (queries, block)
    rows, columns = (approximate >= _thresholds(best, approximate, margins, depth)).nonzero().unbind(1)
    scores = _exact_scores(queries.host, block.host, rows.cpu().numpy(), columns.cpu().numpy())
    keys = _encode(torch.from_numpy(scores).to(places.device), places[columns])
    # Rows have different numbers of new keys: append each row's behind its best so far and fill up with NOTHING.
    counts = torch.bincount(rows, minlength=len(best))
    offsets = torch.arange(len(rows), device=rows.device) - (counts.cumsum(0) - counts)[rows]
    width = best.shape[1]
    merged = torch.full((len(best), width + int(counts.max())), NOTHING, device=best.device)
    merged[:, :width] = best
    merged[rows, width + offsets] = keys
    return merged.topk(min(depth, merged.shape[1]), dim=1).values


def _thresholds(best: Tensor, approximate: Tensor, margins: Tensor, depth: int) -> Tensor:
    """Lowest approximate score, per query, that a passage among the first `depth` can have; shape (queries, 1)."""
    import torch

    if best.shape[1] == depth:
        last = _scores(best[:, -1:])
    elif approximate.shape[1] >= depth:
        last = approximate.topk(depth, dim=1, sorted=False).values.amin(1, keepdim=True)
    else:
        return torch.full((len(approximate), 1), -torch.inf, device=approximate.device)
    return last - margins


def _margins(norms: Tensor, block: Tensor) -> Tensor:
    """Twice the largest error of a score, so that both sides of a comparison may err; shape (queries, 1).

    In single precision an inner product of e terms errs by less than e u |q| |p| / (1 - e u) with u = 2^-24, in
    whatever order it is summed; 8 more and 1 % cover the rounding of exact scores and of the norms.
    """
    unit: float = 2.0**-24
    margins: Tensor = 2 * 1.01 * (block.shape[1] + 8) * unit * norms * _norms(block).max()
    return margins


def _norms(vectors: Tensor) -> Tensor:
    norms: Tensor = vectors.norm(dim=1, keepdim=True)
    if not bool((norms < LONGEST).all()):
        found = "a vector with numbers that are not finite"
        raise input_error("embeddings", found, f"finite numbers, length below {LONGEST:g}", "train or encode again")
    return norms


def _exact_scores(
    queries: Vectors, block: Vectors, rows: npt.NDArray[np.int64], columns: npt.NDArray[np.int64]
) -> Vectors:
    """Inner products of the pairs (queries[rows], block[columns]) in double precision, rounded to single precision.

    `vecdot` computes each pair alone, so that the order of its additions depends on nothing but the dimension; a matrix
    product would sum in another order for another number of pairs. It runs in one thread: the same work as a dozen
    threaded torch operations per 4,096 pairs took 19 and 82 s on two busy cores, this 6 s (whole retrieval of 5,000
    queries over 33,000 passages, depth 1000, one run each).
    """
    scores = np.empty(len(rows), dtype=np.float32)
    for at in range(0, len(rows), PAIRS_AT_ONCE):
        some = slice(at, at + PAIRS_AT_ONCE)
        scores[some] = np.vecdot(queries[rows[some]].astype(np.float64), block[columns[some]].astype(np.float64))
    return scores


def _encode(scores: Tensor, places: Tensor) -> Tensor:
    """Key of each result (see LOW)."""
    import torch

    # Adding 0 makes -0 into 0, which is its equal but has other bits.
    bits = (scores + 0.0).view(torch.int32)
    ordered = torch.where(bits < 0, bits ^ 0x7FFFFFFF, bits).long()
    return (ordered << 32) | (LOW - places)


def _scores(keys: Tensor) -> Tensor:
    import torch

    ordered = (keys >> 32).int()
    scores: Tensor = torch.where(ordered < 0, ordered ^ 0x7FFFFFFF, ordered).view(torch.float32)
    return scores


def _decode(keys: Tensor) -> tuple[Vectors, npt.NDArray[np.int64]]:
    """Scores and alphabetical places of keys."""
    return _scores(keys).cpu().numpy(), (LOW - (keys & LOW)).cpu().numpy()


def _joined(shards: Sequence[Shard], rows: int) -> Iterator[tuple[pa.Array, Vectors]]:
    """Yield (ids, vectors) of all shards in blocks of `rows` rows; the last may have fewer."""
    ids: list[pa.Array] = []
    vectors: list[Vectors] = []
    waiting = 0
    for some_ids, some_vectors in (block for shard in shards for block in shard.blocks()):
        start = 0
        while start < len(some_ids):
            taken = min(rows - waiting, len(some_ids) - start)
            ids.append(some_ids.slice(start, taken))
            vectors.append(np.asarray(some_vectors[start : start + taken], dtype=np.float32))
            start += taken
            waiting += taken
            if waiting == rows:
                yield pa.concat_arrays(ids), np.concatenate(vectors)
                ids, vectors, waiting = [], [], 0
    if waiting:
        yield pa.concat_arrays(ids), np.concatenate(vectors)


def choose_device(name: str, threads: int, leased: Sequence[str]) -> str:
    """Resolve "auto" to "cuda" where there is a device, else to "cpu" with `threads` threads.

    :param leased: devices held for this.
    :raises InputError: when "cuda" is asked for and absent.
    """
    from cort import models

    found = models.choose_device(threads, leased).type
    if name == "cuda" != found:
        raise input_error("--device", "cuda", "a CUDA device", "use `auto` or `cpu`")
    return found if name == "auto" else name


def build_parser() -> argparse.ArgumentParser:
    """Options of this stage."""
    parser = cli.make_parser("cort.retrieve", __doc__)
    parser.add_argument("--queries", required=True, nargs="+", metavar="ARROW", help="embedding shards of the queries")
    parser.add_argument("--passages", required=True, nargs="+", metavar="ARROW", help="embedding shards, all of them")
    parser.add_argument("--depth", type=int, default=1000, metavar="N", help="results per query")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), metavar="N")
    parser.add_argument("--device", choices=["auto", "cpu", "cuda"], default="auto")
    parser.add_argument("--tag", required=True, metavar="NAME", help="last field of each line")
    parser.add_argument("--output", required=True, metavar="TREC")
    return parser


def stage(args: argparse.Namespace) -> None:
    """Open the shards, retrieve, write."""
    if args.depth < 1:
        raise input_error("--depth", str(args.depth), "1 or more", "give the number of results per query")
    passages = open_shards(args.passages)
    queries = open_shards(args.queries, model=passages[0].model)
    if queries[0].dimension != passages[0].dimension:
        found = f"{queries[0].dimension} dimensions"
        raise input_error(queries[0].path, found, f"{passages[0].dimension} as in the passages", "encode again")
    asked = sum(shard.table.num_rows for shard in queries)
    with lease(0 if args.device == "cpu" else 1) as leased:
        device = choose_device(args.device, args.threads, leased)
        started = time.perf_counter()
        lines = write_run(args.output, retrieve(queries, passages, args.depth, device), args.tag)
        milliseconds = (time.perf_counter() - started) * 1000 / max(asked, 1)
    log.info("%d queries on %s, %d results, %.2f ms per query", asked, device, lines, milliseconds)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage; the exit status."""
    return cli.run(build_parser(), stage, argv)


if __name__ == "__main__":
    sys.exit(main())

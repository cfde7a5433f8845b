"""Compare exact search with faiss' flat index, a graph index, and the limits of the machine.

Vectors are synthetic (clustered like passages of a document, or independent), or those of an experiment (--shards and
--queries). All searches alternate on the same queries; the table has medians and ratios of pairs. `read` sums all
vectors once, `product` only multiplies, `codes` searches int8 codes first, with memory-mapped vectors, `fp32` the
vectors in memory, `one by one` in the layout for single queries, `from file` memory-mapped, `hnsw` a graph (with --ef),
`faiss` its flat index, if installed. The last column is the recall of the exact results.

Usage: python -m scripts.bench.exact [--passages 1000000] [--batches 1 32 256] [--device cuda] [--ef 1500]
       python -m scripts.bench.exact --shards results/pydocs/embeddings/cort/passages.*.arrow
           --queries results/pydocs/embeddings/cort/queries.test.arrow --batches 1 --threads 1 --ef 1500
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.shards import all_vectors, open_shards, write_shard
from cort.retrieval.codes import is_fast
from cort.retrieval.exact import ExactIndex
from cort.retrieval.graph_search import open_index
from scripts.bench.common import in_turns, parse, print_table, ratios, run_stage, timed

Vectors: TypeAlias = npt.NDArray[np.float32]
Search: TypeAlias = Callable[[Vectors], Any]
PAIRS = (("faiss", "codes"), ("faiss", "fp32"), ("one by one", "codes"), ("codes", "read"), ("codes", "hnsw"))
BLOCK = 4_096


def clustered(count: int, dimension: int, clusters: int, spread: float) -> Vectors:
    """Draw unit vectors around centres; without clusters, uniformly."""
    generator = np.random.default_rng(1)
    vectors = spread * generator.standard_normal((count, dimension), dtype=np.float32)
    if clusters:
        centres = generator.standard_normal((clusters, dimension), dtype=np.float32)
        vectors += centres[np.sort(generator.integers(0, clusters, count))]
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # type: ignore[no-any-return]


def near(vectors: Vectors, count: int) -> Vectors:
    """Draw queries near some of the vectors."""
    generator = np.random.default_rng(2)
    queries = vectors[generator.integers(0, len(vectors), count)]
    queries += 0.05 * generator.standard_normal(queries.shape, dtype=np.float32)
    return queries / np.linalg.norm(queries, axis=1, keepdims=True)  # type: ignore[no-any-return]


def write_vectors(path: Path, vectors: Vectors) -> Path:
    """Write vectors as `encode` does, with their row as ids."""
    ids = list(map(str, range(len(vectors))))
    blocks = ((ids[at : at + BLOCK], vectors[at : at + BLOCK]) for at in range(0, len(ids), BLOCK))
    write_shard(path, blocks, model="vectors", dimension=vectors.shape[1], count=len(vectors))
    return path


def searches(vectors: Vectors, folder: Path, args: argparse.Namespace) -> tuple[dict[str, Search], dict[str, Search]]:
    """Return searches to time, and functions that return the ids of exact and other results, all by name."""
    path, device, depth = write_vectors(folder / "passages.arrow", vectors), args.device, args.depth
    index = partial(ExactIndex, open_shards([path]), [device], args.threads)
    held = index(vectors.nbytes, coded=False)
    everything = torch.from_numpy(vectors).to(device)
    blocks = torch.split(everything, BLOCK if device == "cpu" else len(everything))

    def product(queries: Vectors) -> None:
        batch = torch.from_numpy(queries).to(device)
        for block in blocks:
            torch.mv(block, batch[0]) if len(batch) == 1 else torch.mm(batch, block.T)
        if device != "cpu":
            torch.cuda.synchronize()

    timed_searches: dict[str, Search] = {
        "read": lambda _: everything.sum().item(),
        "product": product,
        "fp32": partial(held.search, depth=depth),
        "one by one": partial(index(vectors.nbytes, one_by_one=True, coded=False).search, depth=depth),
        "from file": partial(index(0, coded=False).search, depth=depth),
    }
    ids: dict[str, Search] = {"": lambda queries: [held.ids(places) for _, places in held.search(queries, depth)]}
    if device == "cpu" and is_fast():
        timed_searches["codes"] = partial(index(coded=True).search, depth=depth)
    if args.ef:
        run_stage("index hnsw", passages=path, M=32, output=folder / "hnsw")
        graph = open_index("hnsw", folder / "hnsw")
        timed_searches["hnsw"] = lambda queries: [graph.search(query, args.ef, depth).rows for query in queries]
        ids["hnsw"] = lambda queries: [graph.ids.take(rows).to_pylist() for rows in timed_searches["hnsw"](queries)]
    with suppress(ImportError):
        import faiss

        faiss.omp_set_num_threads(args.threads)
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        timed_searches["faiss"] = lambda queries: flat.search(queries, depth)[1]
        ids["faiss"] = lambda queries: [list(map(str, rows)) for rows in timed_searches["faiss"](queries).tolist()]
    return timed_searches, ids


def measure(named: dict[str, Search], pairs: Sequence[tuple[str, str]], queries: Sequence[Vectors]) -> list[str]:
    """Time every search; return the cells of the table: medians in ms, and ratios of pairs."""

    def seconds_of(search: Search) -> Callable[[], float]:
        left = iter(queries)
        return lambda: timed(lambda: search(next(left))).seconds

    taken = in_turns(len(queries) - 1, {name: seconds_of(search) for name, search in named.items()}, warm_up=True)
    medians = [f"{statistics.median(times) * 1e3:.1f}" for times in taken.values()]
    return [*medians, *(ratios(taken[first], taken[second]) for first, second in pairs)]


def recalls(ids: dict[str, Search], queries: Vectors) -> str:
    """Write the recall of the exact results by the other searches."""
    exact = ids[""](queries)
    others = {name: zip(exact, search(queries), strict=True) for name, search in ids.items() if name}
    shares = {
        name: statistics.mean(len({*expected} & {*results}) / len(expected) for expected, results in pairs)
        for name, pairs in others.items()
    }
    return ", ".join(f"{name} {share:.5f}" for name, share in shares.items())


def worlds(args: argparse.Namespace) -> Iterator[tuple[str, Vectors, list[list[Vectors]]]]:
    """Yield vectors by name, with the queries of all rounds (and a warm-up) for each batch size."""
    rounds = args.rounds + 1
    if args.shards[0]:
        vectors, queries = (all_vectors(open_shards(paths)) for paths in (args.shards, [args.queries]))
        rows = (np.arange(rounds * batch).reshape(rounds, batch) % len(queries) for batch in args.batches)
        yield args.shards[0], vectors, [[queries[of_round] for of_round in of_batch] for of_batch in rows]
        return
    for kind, clusters, spread in (("clustered", args.passages // 500, 0.6), ("random", 0, 1.0)):
        vectors = clustered(args.passages, args.dimension, clusters, spread)
        yield kind, vectors, [np.split(near(vectors, rounds * batch), rounds) for batch in args.batches]


def main() -> None:
    """Measure and print."""
    sizes = {"passages": 1_000_000, "dimension": 128, "depth": 1_000, "batches": [1, 32, 256], "rounds": 5, "ef": 0}
    how = {"threads": torch.get_num_threads(), "device": "cpu", "shards": [""], "queries": None}
    args = parse(__doc__, **sizes, **how)
    torch.set_num_threads(args.threads)
    for kind, vectors, batches in worlds(args):
        with tempfile.TemporaryDirectory() as folder:
            named, ids = searches(vectors, Path(folder), args)
            pairs = [pair for pair in PAIRS if named.keys() >= {*pair}]
            rows = [[len(batch[0]), *measure(named, pairs, batch), recalls(ids, batch[0])] for batch in batches]
        sys.stdout.write(f"\n{kind}: {len(vectors)} x {vectors.shape[1]}, depth {args.depth}, {args.device}\n")
        print_table(rows, ["batch", *(f"{name}, ms" for name in named), *map("/".join, pairs), "recall"])


if __name__ == "__main__":
    main()

"""Compare exact search on a CPU with faiss' flat index, a graph index, and the limits of the machine.

Vectors are synthetic (clustered like passages of a document, or independent), or those of an experiment (--shards and
--queries). All searches alternate on the same queries; the table has medians and ratios of pairs. `read` sums all
vectors once, `product` only multiplies, `codes` searches int8 codes first, with memory-mapped vectors, `fp32` the
vectors in memory, `one by one` in the layout for single queries, `from file` memory-mapped, `hnsw` a graph (with --ef),
`faiss` its flat index, if installed. The last column is the share of the exact results that the graph finds.

Usage: python -m scripts.bench.exact [--passages 1000000] [--batches 1 32 256] [--ef 1500]
       python -m scripts.bench.exact --shards results/pydocs/embeddings/cort/passages.*.arrow
           --queries results/pydocs/embeddings/cort/queries.test.arrow --batches 1 --threads 1 --ef 1500
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from cort.formats.shards import write_shard
from cort.retrieval.codes import is_fast
from cort.retrieval.exact import ExactIndex, First
from cort.retrieval.graph_search import open_index
from cort.retrieval.vectors import open_vectors
from scripts.bench import common

Vectors: TypeAlias = npt.NDArray[np.float32]
Search: TypeAlias = Callable[[Vectors], Any]
PAIRS = (("faiss", "codes"), ("faiss", "fp32"), ("one by one", "codes"), ("codes", "read"), ("codes", "hnsw"))


def unit(vectors: Vectors) -> Vectors:
    """Scale to length 1."""
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)  # type: ignore[no-any-return]


def worlds(args: argparse.Namespace) -> Iterator[tuple[str, Vectors, Vectors]]:
    """Yield passages and queries by name."""
    if args.shards[0]:
        vectors, queries = (open_vectors(paths).matrix() for paths in (args.shards, [args.queries]))
        yield args.shards[0], vectors, queries
        return
    for kind, spread in (("clustered", 0.6), ("random", 1.0)):
        generator = np.random.default_rng(1)
        vectors = spread * generator.standard_normal((args.passages, args.dimension), dtype=np.float32)
        if kind == "clustered":
            clusters = generator.standard_normal((args.passages // 500 or 1, args.dimension), dtype=np.float32)
            vectors += clusters[np.sort(generator.integers(len(clusters), size=len(vectors)))]
        vectors = unit(vectors)
        near = vectors[generator.integers(len(vectors), size=(args.rounds + 1) * max(args.batches))]
        yield kind, vectors, unit(near + 0.05 * generator.standard_normal(near.shape, dtype=np.float32))


def searches(vectors: Vectors, path: Path, args: argparse.Namespace) -> dict[str, Search]:
    """Write the vectors, and return searches by name, which return the places of the results."""
    # In the order of the rows, so that places are rows.
    ids = [f"{row:09}" for row in range(len(vectors))]
    write_shard(path, [(ids, vectors)], model="vectors", dimension=vectors.shape[1], count=len(vectors))
    everything, depth = torch.from_numpy(vectors), args.depth

    def index(megabytes: int, first: First) -> Search:
        search = ExactIndex(open_vectors([path]), ["cpu"], args.threads, megabytes, first=first).search
        return lambda queries: [places for _, places in search(queries, depth)]

    named: dict[str, Search] = {
        "read": lambda _: everything.sum().item(),
        "product": lambda queries: [block @ torch.from_numpy(queries).T for block in torch.split(everything, 4_096)],
        "fp32": index(vectors.nbytes, "single"),
        "from file": index(0, "single"),
    }
    if is_fast():
        named["codes"] = index(0, "codes")
    if args.ef:
        common.run_stage("index hnsw", passages=path, M=32, output=path.with_name("hnsw"))
        graph = open_index("hnsw", path.with_name("hnsw"))
        named["hnsw"] = lambda queries: [graph.search(query, args.ef, depth)[1] for query in queries]
    with suppress(ImportError):
        import faiss

        faiss.omp_set_num_threads(args.threads)
        flat = faiss.IndexFlatIP(vectors.shape[1])
        flat.add(vectors)
        named["faiss"] = lambda queries: flat.search(queries, depth)[1]
    return named


def measure(named: dict[str, Search], queries: Vectors, batch: int, rounds: int) -> list[str]:
    """Time every search after a warm-up; return a row of the table: medians in ms, ratios of pairs, recall."""

    def seconds_of(search: Search) -> Callable[[], float]:
        rows = iter(np.arange((rounds + 1) * batch).reshape(-1, batch) % len(queries))
        return lambda: common.seconds_of(partial(search, queries[next(rows)]))

    taken = common.in_turns(rounds + 1, {name: seconds_of(search) for name, search in named.items()})
    taken = {name: times[1:] for name, times in taken.items()}
    medians = [f"{statistics.median(times) * 1e3:.1f}" for times in taken.values()]
    pairs = [common.ratios(taken[first], taken[second]) for first, second in PAIRS if named.keys() >= {first, second}]
    found = zip(*(named[name](queries[:batch]) for name in ("fp32", "hnsw") if name in named), strict=True)
    recalls = [len({*exact} & {*others[0]}) / len(exact) for exact, *others in found if others]
    return [str(batch), *medians, *pairs, f"{statistics.mean(recalls):.5f}" if recalls else ""]


def main() -> None:
    """Measure and print."""
    sizes = {"passages": 1_000_000, "dimension": 128, "depth": 1_000, "batches": [1, 32, 256], "rounds": 5, "ef": 0}
    args = common.parse(__doc__, **sizes, threads=torch.get_num_threads(), shards=[""], queries=None)
    torch.set_num_threads(args.threads)
    for kind, vectors, queries in worlds(args):
        with tempfile.TemporaryDirectory() as folder:
            named = searches(vectors, Path(folder) / "passages.arrow", args)
            rows = [measure(named, queries, batch, args.rounds) for batch in args.batches]
        sys.stdout.write(f"\n{kind}: {len(vectors)} x {vectors.shape[1]}, depth {args.depth}\n")
        pairs = [f"{first}/{second}" for first, second in PAIRS if named.keys() >= {first, second}]
        common.print_table(["batch", *(f"{name}, ms" for name in named), *pairs, "recall"], rows)


if __name__ == "__main__":
    main()

"""Exact search against faiss' flat index and against what the machine can do at best, in one run.

Vectors are synthetic: in clusters, as passages of one document are, or independent of each other. All take turns on the
same queries; the table has medians and ratios of pairs. `read` sums all vectors once, `product` multiplies only,
`codes` searches codes of 8 bits first, with the vectors in a mapped file, `fp32` the vectors in memory, `one by one`
with these laid out for single queries, `from file` in a mapped file. faiss is measured where it is installed.

Usage: python -m scripts.bench.exact [--passages 1000000] [--dimension 128] [--batches 1 32 256] [--device cuda]
"""

import statistics
import sys
import tempfile
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from cort.formats.embeddings import open_shards
from cort.retrieval.codes import is_fast
from cort.retrieval.exact import ExactIndex
from scripts.bench.common import BLOCK, Vectors, in_turns, parse, print_table, ratios, timed, write_vectors

Search = Callable[[Vectors], object]
PAIRS = (("faiss", "codes"), ("faiss", "fp32"), ("one by one", "codes"), ("codes", "read"))


def clustered(count: int, dimension: int, clusters: int, spread: float, seed: int) -> Vectors:
    """Draw unit vectors around centres; without clusters, in all directions."""
    generator = np.random.default_rng(seed)
    vectors = spread * generator.standard_normal((count, dimension), dtype=np.float32)
    if clusters:
        centres = generator.standard_normal((clusters, dimension), dtype=np.float32)
        vectors += centres[np.sort(generator.integers(0, clusters, count))]
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors


def searches(vectors: Vectors, path: Path, depth: int, device: str, threads: int) -> dict[str, Search]:
    """Name what is timed."""
    shards = open_shards([path])
    floats = partial(ExactIndex, shards, [device], threads, coded=False)
    mapped, index = (floats(memory) for memory in (0, vectors.nbytes))
    single = floats(vectors.nbytes, one_by_one=True)
    chosen = index
    everything = torch.from_numpy(vectors).to(device)
    blocks = torch.split(everything, BLOCK if device == "cpu" else len(everything))

    def product(queries: Vectors) -> None:
        asked = torch.from_numpy(queries).to(device)
        for block in blocks:
            torch.mv(block, asked[0]) if len(asked) == 1 else torch.mm(asked, block.T)
        if device != "cpu":
            torch.cuda.synchronize()

    def with_ids(queries: Vectors) -> list[set[int]]:
        return [{int(doc_id[1:]) for doc_id in chosen.ids(places)} for _, places in chosen.search(queries, depth)]

    found: dict[str, Search] = {
        "read": lambda _: everything.sum().item(),
        "product": product,
        "fp32": partial(index.search, depth=depth),
        "one by one": partial(single.search, depth=depth),
        "with ids": with_ids,
        "from file": partial(mapped.search, depth=depth),
    }
    if device == "cpu" and is_fast():
        chosen = ExactIndex(shards, [device], threads, coded=True)
        found["codes"] = partial(chosen.search, depth=depth)
    try:
        import faiss
    except ImportError:
        return found
    faiss.omp_set_num_threads(threads)
    flat = faiss.IndexFlatIP(vectors.shape[1])
    flat.add(vectors)
    return found | {"faiss": lambda queries: [set(row.tolist()) for row in flat.search(queries, depth)[1]]}


def measure(named: dict[str, Search], pairs: Sequence[tuple[str, str]], queries: Sequence[Vectors]) -> list[str]:
    """Time every search in every round but the first; cells of the table: medians in ms, and ratios of pairs."""

    def seconds_of(search: Search) -> Callable[[], float]:
        left = iter(queries)
        return lambda: timed(lambda: search(next(left))).seconds

    sides = {name: seconds_of(search) for name, search in named.items()}
    taken = in_turns(len(queries) - 1, sides, warm_up=True)
    medians = [f"{statistics.median(times) * 1e3:.1f}" for times in taken.values()]
    return [*medians, *(ratios(taken[first], taken[second]) for first, second in pairs)]


def near(vectors: Vectors, count: int, generator: np.random.Generator) -> Vectors:
    """Draw queries near some of the vectors."""
    some = vectors[generator.integers(0, len(vectors), count)]
    some += 0.05 * generator.standard_normal(some.shape, dtype=np.float32)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    return some


def overlap(named: dict[str, Search], queries: Vectors) -> str:
    """Share of faiss' results that are ours; nothing without faiss."""
    if "faiss" not in named:
        return ""
    ours, theirs = (named[name](queries) for name in ("with ids", "faiss"))
    shares = [len(one & other) / len(other) for one, other in zip(ours, theirs, strict=True)]  # type: ignore[call-overload]
    return f"{statistics.mean(shares):.5f}"


def main() -> None:
    """Measure and print."""
    sizes = {"passages": 1_000_000, "dimension": 128, "depth": 1_000, "batches": [1, 32, 256], "rounds": 5}
    args = parse(__doc__, **sizes, threads=torch.get_num_threads(), device="cpu")
    torch.set_num_threads(args.threads)
    for kind, clusters, spread in (("clustered", args.passages // 500, 0.6), ("random", 0, 1.0)):
        vectors = clustered(args.passages, args.dimension, clusters, spread, seed=1)
        generator = np.random.default_rng(2)
        with tempfile.TemporaryDirectory() as folder:
            path = write_vectors(Path(folder) / "passages.arrow", vectors, "d")
            named = searches(vectors, path, args.depth, args.device, args.threads)
            sys.stdout.write(f"\n{args.passages} {kind} x {args.dimension}, depth {args.depth}, {args.device}\n")
            pairs = [pair for pair in PAIRS if named.keys() >= {*pair}]
            rows = []
            for batch in args.batches:
                queries = [near(vectors, batch, generator) for _ in range(args.rounds + 1)]
                rows.append([batch, *measure(named, pairs, queries), overlap(named, queries[0])])
        print_table(rows, ["batch", *(f"{name}, ms" for name in named), *map("/".join, pairs), "same results"])


if __name__ == "__main__":
    main()

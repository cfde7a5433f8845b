"""Exact retrieval in one job beside the same in several and their merge: CPU time, memory, and whether bytes agree.

Vectors are synthetic unit vectors in half precision, written in blocks. Jobs run one after the other with the same
threads, as they would on nodes of their own; the sum of their CPU time, their starts and the merge included, is what
scattering costs.

Usage: python -m scripts.bench.scatter [--passages 8841823] [--queries 6980] [--parts 4] [--folder /dev/shm]
"""

import filecmp
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from cort.formats.embeddings import write_shard
from scripts.bench.common import BLOCK, Cost, Vectors, in_turns, parse, print_table, ratios, run_stage


def unit_vectors(count: int, dimension: int, name: str, seed: int) -> Iterator[tuple[list[str], Vectors]]:
    """Draw unit vectors in all directions, in blocks with their ids."""
    generator = np.random.default_rng(seed)
    for first in range(0, count, BLOCK):
        rows = range(first, min(first + BLOCK, count))
        vectors = generator.standard_normal((len(rows), dimension), dtype=np.float32)
        yield [f"{name}{row}" for row in rows], vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write(folder: Path, name: str, count: int, dimension: int, seed: int) -> Path:
    """Write synthetic vectors as `encode` does."""
    path, blocks = folder / f"{name}.arrow", unit_vectors(count, dimension, name[0], seed)
    write_shard(path, blocks, model="synthetic", dimension=dimension, count=count, storage="fp16")
    return path


def main() -> None:
    """Write vectors, retrieve in turns, compare the bytes, print."""
    sizes = {"passages": 8_841_823, "queries": 6_980, "dimension": 128, "depth": 1_000}
    args = parse(__doc__, **sizes, parts=4, threads=1, rounds=1, folder=None)
    with tempfile.TemporaryDirectory(dir=args.folder) as name:
        folder = Path(name)
        vectors = {
            "passages": write(folder, "passages", args.passages, args.dimension, seed=1),
            "queries": write(folder, "queries", args.queries, args.dimension, seed=2),
        }
        how = {**vectors, "depth": args.depth, "threads": args.threads, "device": "cpu", "tag": "x"}
        whole, merged = folder / "whole.trec", folder / "merged.trec"
        parts = [folder / f"{number}.parquet" for number in range(1, args.parts + 1)]

        def one() -> list[Cost]:
            return [run_stage("retrieve", **how, output=whole)]

        def several() -> list[Cost]:
            pieces = enumerate(parts, start=1)
            costs = [run_stage("retrieve", **how, part=f"{n}-of-{args.parts}", output=path) for n, path in pieces]
            return [*costs, run_stage("merge", parts=parts, depth=args.depth, tag="x", output=merged)]

        found = in_turns(args.rounds, {"one": one, "several": several})
        same = filecmp.cmp(whole, merged, shallow=False)
    sys.stdout.write(f"\n{args.passages} x {args.dimension}, {args.queries} queries, depth {args.depth}\n")
    rows = [(side, cost) for side, rounds in found.items() for costs in rounds for cost in costs]
    spent = {side: [sum(cost.cpu for cost in costs) for costs in rounds] for side, rounds in found.items()}
    print_table([*rows, ("CPU time, several / one", ratios(spent["several"], spent["one"])), ("same bytes", same)])


if __name__ == "__main__":
    main()

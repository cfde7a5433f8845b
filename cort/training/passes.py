"""Passes over more examples than fit into memory: the rows of a file, in order or shuffled.

A shuffle has two steps: each row goes to one of several files at random, then each file is shuffled in memory. All
orders are equally likely.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: examples, (n, columns)
Rows = npt.NDArray[np.int32]

# Rows in memory at a time, and the average per file of a shuffle. They affect the result, so they are not settings.
BLOCK, ROWS_PER_FILE = 1 << 20, 1 << 22


def iter_rows(path: Path, columns: int) -> Iterator[Rows]:
    """Yield the rows of a file block by block."""
    with open(path, "rb") as file:
        while len(values := np.fromfile(file, np.int32, BLOCK * columns)):
            yield values.reshape(-1, columns)


def draw_rows(blocks: Iterator[Rows], total: int, count: int, seed: int) -> Iterator[Rows]:
    """Keep `count` of `total` rows, drawn at random and in their original order; 0 keeps all."""
    generator, left, wanted = np.random.default_rng([seed]), total, count if 0 < count < total else total
    for block in blocks:
        size, left = len(block), left - len(block)
        # How many of the drawn rows are in this block is random, too.
        drawn = int(generator.hypergeometric(size, left, wanted)) if 0 < wanted < size + left else min(wanted, size)
        yield block[np.sort(generator.choice(size, drawn, replace=False)) if drawn < size else slice(None)]
        wanted -= drawn


def shuffled(path: Path, columns: int, seed: int, epoch: int, folder: Path) -> Iterator[Rows]:
    """Yield the rows of a file in the random order of an epoch, block by block; `folder` is for temporary files."""
    generator = np.random.default_rng([seed, epoch])
    files = -(-path.stat().st_size // (4 * columns * ROWS_PER_FILE))
    parts = [path] if files < 2 else [folder / f"{epoch}.{number}" for number in range(files)]
    if files > 1:
        _scatter(iter_rows(path, columns), parts, generator)
    for part in parts:
        rows = np.fromfile(part, np.int32).reshape(-1, columns)
        order = generator.permutation(len(rows))
        yield from (rows[order[start : start + BLOCK]] for start in range(0, len(rows), BLOCK))
        if files > 1:
            part.unlink()


def _scatter(blocks: Iterator[Rows], parts: list[Path], generator: np.random.Generator) -> None:
    with ExitStack() as opened:
        files = [opened.enter_context(open(part, "wb")) for part in parts]
        for block in blocks:
            drawn = generator.integers(len(parts), size=len(block))
            by_part = np.argsort(drawn, kind="stable")
            cuts = np.cumsum(np.bincount(drawn, minlength=len(parts)))[:-1]
            for file, rows in zip(files, np.split(block[by_part], cuts), strict=True):
                rows.tofile(file)

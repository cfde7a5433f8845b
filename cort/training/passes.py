"""Passes over more examples than fit into memory: the rows of a file, in order, drawn, or shuffled."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: examples, (n, columns)
Rows = npt.NDArray[np.int32]

# Rows in memory at a time. They affect the result, so they are not a setting.
BLOCK = 1 << 20


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


def shuffled(path: Path, columns: int, seed: int, epoch: int) -> Iterator[Rows]:
    """Yield the rows of a file in the random order of an epoch, block by block; the order is in memory."""
    rows = np.memmap(path, np.int32, "r").reshape(-1, columns)
    order = np.random.default_rng([seed, epoch]).permutation(len(rows))
    yield from (rows[order[start : start + BLOCK]] for start in range(0, len(rows), BLOCK))

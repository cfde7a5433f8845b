"""Run a model on one shard of a collection's passages, on the device it leases; imports torch only when it runs.

The passages are split into blocks of fixed size, and a shard is a run of complete blocks, so the number of shards does
not change the result. With a folder of checkpoints, finished blocks are kept until the shard is complete, and an
interrupted shard continues after its last finished block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.models.settings import Precision
from cort.system.devices import lease
from cort.system.options import optional, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch

#: first row of each block, and the row after its last
Ranges: TypeAlias = list[tuple[int, int]]


@dataclass(frozen=True, kw_only=True)
class PassageOptions(ShardOptions):
    """Options of stages that run a model on the passages."""

    model: str = required("FOLDER")
    tokens: str = required("ARROW", "token cache of the passages")
    precision: Precision = optional("fp32", "of the model")
    threads: int = thread_count()
    output: str = required("PARQUET")


class Run(NamedTuple):
    """Where the model runs, the blocks that are finished, and the counter of passages."""

    device: torch.device
    finished: FinishedBlocks
    counter: Counter


def write_shard(
    stage: str,
    options: PassageOptions,
    schema: pa.Schema,
    rows: int,
    size: int,
    prepare: Callable[[Run], Callable[[Any], pa.RecordBatch]],
    decisive: Sequence[str],
    files: Sequence[str] = (),
    read: Callable[[Ranges], Iterable[tuple[int, Any]]] | None = None,
) -> str:
    """Write a row per passage, with a list in its second column; returns what was done where, for the log.

    :param rows: number of passages in all shards; `size` of each block.
    :param prepare: moves the model to a device and returns the function that computes a block.
    :param decisive: options that the result depends on, besides the model, the tokens and other `files`.
    :param read: yields the number and the input of each block; without it, the input is the block's range of rows.
    """
    from cort.models.transformer import choose_device, identity

    ranges = shard_blocks(rows, options.shard, size)
    numbers, count, entries = [start // size for start, _ in ranges], sum(end - start for start, end in ranges), 0
    with lease() as leased, tables.open_writer(options.output, schema) as writer:
        device = choose_device(options.threads, leased)
        values = {name: getattr(options, name) for name in decisive} | {"device": device.type}
        identify = partial(identity, stage, values, [options.tokens, *files], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        blocks = read(ranges) if read else zip(numbers, ranges, strict=True)
        with Counter(count, "passages") as counter:
            compute = prepare(Run(device, finished, counter))
            for batch in finished.each(blocks, compute, counter):
                writer.write_batch(batch)
                entries += len(batch[1].flatten())
    finished.remove(numbers)
    return f"{entries} for {count} of {rows} passages on {device} in {options.precision}"

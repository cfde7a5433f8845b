"""Job a model on one shard of texts, on a leased device; imports torch only then.

Texts are divided into blocks of fixed size, and a shard is a sequence of complete blocks, so the number of shards does
not change the result. With a folder of checkpoints, finished blocks are kept until the shard is complete, and an
interrupted shard resumes after its last finished block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks, shard_blocks
from cort.formats.precisions import KEY
from cort.settings import models
from cort.settings.fields import PrecisionOrAuto
from cort.system.devices import lease
from cort.system.options import optional, options_class, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch

    from cort.models.modules import TextModel
    from cort.models.rerankers import Reranker
    from cort.models.weigher import Weigher

#: first row of each block, and the row after its last
Ranges: TypeAlias = list[tuple[int, int]]


@options_class
class ModelOptions:
    """Options of stages that run a model and can resume after the last finished block."""

    model: str = required("FOLDER")
    precision: PrecisionOrAuto = optional(models.Encoder.precision, "of the model")
    threads: int = thread_count()
    checkpoints: str | None = optional(None, "keep finished blocks here until the output is complete", "FOLDER")
    output: str = required("PARQUET")


@options_class
class PassageOptions(ModelOptions):
    """Options of stages that run a model on a shard of the passages."""

    tokens: str = required("ARROW", "token cache of the passages")
    shard: str = optional("1-of-1", metavar="I-of-N")


class Job(NamedTuple):
    """Where and in which precision the model runs, the blocks that are finished, and the counter of texts."""

    device: torch.device
    precision: str
    finished: FinishedBlocks
    counter: Counter

    def place(self, model: TextModel | Weigher | Reranker) -> None:
        """Move a model to the device, and have it compute only what is not finished."""
        from cort.models.transformer import resume

        model.place(self.device, self.precision)
        resume(model, self.finished, self.device, self.counter)


def compute_shard(
    stage: str,
    options: ModelOptions,
    shard: str,
    rows: int,
    size: int,
    prepare: Callable[[Job], Callable[[Any], pa.RecordBatch]],
    write: Callable[[Iterator[pa.RecordBatch], int, str], None],
    decisive: Sequence[str],
    files: Sequence[str],
    read: Callable[[Ranges], Iterable[tuple[int, Any]]] | None = None,
    items: str = "passages",
) -> str:
    """Compute the blocks of a shard except finished ones, and write all; returns a description of this for the log.

    :param rows: number of texts in all shards; each block has `size` of them.
    :param prepare: moves the model to a device and returns the function that computes a block.
    :param write: called with the batches, the number of texts in the shard, and the precision.
    :param decisive: options that the result depends on, besides the model, its precision and the `files`.
    :param read: yields the number and the input of each block; by default, the input is the block's range of rows.
    :param items: what the log calls the texts.
    """
    from cort.models.precision import forget, settle
    from cort.models.transformer import choose_device, identity

    ranges = shard_blocks(rows, shard, size)
    numbers, count = [start // size for start, _ in ranges], sum(end - start for start, end in ranges)
    with lease() as leased:
        device = choose_device(options.threads, leased)
        precision = settle(options.precision, device, options.checkpoints)
        values = {name: getattr(options, name) for name in decisive} | {"device": device.type, "precision": precision}
        finished = FinishedBlocks(options.checkpoints, partial(identity, stage, values, files, options.model))
        blocks = read(ranges) if read else zip(numbers, ranges, strict=True)
        with Counter(count, items) as counter:
            compute = prepare(Job(device, precision, finished, counter))
            write(finished.each(blocks, compute, counter), count, precision)
    if shard == "1-of-1":
        forget(options.checkpoints)
    finished.remove(numbers)
    return f"{count} of {rows} {items} on {device} in {precision}"


def table_writer(output: str, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch], int, str], None]:
    """Make the function with which `compute_shard` writes a parquet table."""

    def write(batches: Iterator[pa.RecordBatch], _: int, precision: str) -> None:
        with tables.open_writer(output, schema.with_metadata({KEY: precision})) as writer:
            for batch in batches:
                writer.write_batch(batch)

    return write

"""Run a model on one shard of texts, on a leased device; imports torch only then.

Texts are divided into groups of fixed size, and a shard is a sequence of complete groups, so the number of shards does
not change the result. A group with many tokens is computed in several blocks. With a folder of checkpoints, finished
blocks are kept until the shard is complete, and an interrupted shard resumes after its last finished block.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.checkpoints import FinishedBlocks
from cort.formats.records import Integers
from cort.formats.shards import KEY, shard_range
from cort.models.truncation import log_truncation
from cort.runtime.devices import lease
from cort.runtime.errors import input_error, shorten
from cort.runtime.options import optional, options_class, required, thread_count
from cort.runtime.progress import Counter
from cort.settings import models
from cort.settings.fields import PrecisionOrAuto, as_key

if TYPE_CHECKING:
    import torch

    from cort.models.batching import FramedTexts, Lengths
    from cort.models.modules import TextModel
    from cort.models.rerankers import Reranker
    from cort.models.weigher import Weigher

log = logging.getLogger(__name__)

#: first row of each block, and the row after its last
Ranges: TypeAlias = list[tuple[int, int]]


@options_class
class ModelOptions:
    """Options of stages that run a model and can resume after the last finished block."""

    model: str = required("FOLDER")
    precision: PrecisionOrAuto = as_key(models.Encoder, "precision", "of the model")
    threads: int = thread_count()
    checkpoints: str | None = optional(None, "keep finished blocks here until the output is complete", "FOLDER")
    output: str = required("PARQUET")


@options_class
class PassageOptions(ModelOptions):
    """Options of stages that run a model on a shard of the passages."""

    tokens: str = required("ARROW", "token cache of the passages")
    shard: str = optional("1-of-1", metavar="I-of-N")


class Job(NamedTuple):
    """Where and in which precision the model runs, and the counter of texts."""

    device: torch.device
    precision: str
    counter: Counter

    def place(self, model: TextModel | Weigher | Reranker) -> None:
        """Move a model to the device, and count the texts or pairs that go through it."""
        model.place(self.device, self.precision)
        model.register_forward_hook(lambda module, inputs, outputs: self.counter.advance(len(outputs)))


def blocks_of(lengths: Lengths, shard: str, size: int, most: int) -> Ranges:
    """Divide the texts of shard "i-of-n" into blocks of consecutive rows, at most `size` and about `most` tokens.

    Shards are as even as possible, and begin at multiples of `size`, so that `most` may differ between them.
    """
    first, last = shard_range(-(-len(lengths) // size), shard, "--shard")
    blocks = []
    for start in range(first * size, min(last * size, len(lengths)), size):
        rows = min(size, len(lengths) - start)
        count = min(max(-(-int(lengths[start : start + rows].sum()) // most), 1), rows)
        blocks += [(start + rows * part // count, start + rows * (part + 1) // count) for part in range(count)]
    return blocks


def compute_shard(
    stage: str,
    options: ModelOptions,
    shard: str,
    lengths: Lengths,
    size: int,
    prepare: Callable[[Job], Callable[[tuple[int, int]], pa.RecordBatch]],
    write: Callable[[Iterator[pa.RecordBatch], int, str], None],
    decisive: Sequence[str],
    files: Sequence[str],
    items: str = "passages",
) -> str:
    """Compute the blocks of a shard except finished ones, and write all; returns a description of this for the log.

    :param lengths: tokens of each text, of all shards; a batch in the output has `size` texts.
    :param prepare: moves the model to a device and returns the function that computes a block, a range of rows.
    :param write: called with the batches, the number of texts in the shard, and the precision.
    :param decisive: options that the result depends on, besides the model, its precision and the `files`.
    :param items: what the log calls the texts.
    """
    from cort.models.precision import forget, settle
    from cort.models.transformer import BATCHES_PER_BLOCK, TOKEN_BUDGETS, choose_device, identity

    with lease() as leased:
        device = choose_device(options.threads, leased)
        ranges = blocks_of(lengths, shard, size, BATCHES_PER_BLOCK * TOKEN_BUDGETS[device.type])
        numbers, count = [start for start, _ in ranges], sum(end - start for start, end in ranges)
        precision = settle(options.precision, device, options.checkpoints)
        values = {name: getattr(options, name) for name in decisive} | {"device": device.type, "precision": precision}
        finished = FinishedBlocks(options.checkpoints, partial(identity, stage, values, files, options.model))
        blocks = zip(numbers, ranges, strict=True)
        with Counter(count, items) as counter:
            tables_of = tables.regroup(finished.each(blocks, prepare(Job(device, precision, counter)), counter), size)
            write((table.combine_chunks().to_batches()[0] for table in tables_of), count, precision)
    if shard == "1-of-1":
        forget(options.checkpoints)
    finished.remove(numbers)
    return f"{count} of {len(lengths)} {items} on {device} in {precision}"


def compute_texts(
    stage: str,
    options: PassageOptions,
    model: TextModel | Weigher,
    texts: FramedTexts,
    size: int,
    compute: Callable[[Job, Integers], pa.RecordBatch],
    write: Callable[[Iterator[pa.RecordBatch], int, str], None],
    decisive: Sequence[str] = (),
    items: str = "texts",
) -> str:
    """Compute a shard of framed texts with `compute_shard`, and log how much of them is truncated.

    :param compute: computes the texts in some rows.
    """
    log_truncation(log, options.tokens, texts.tokens.lengths, texts.max_length - texts.template.extra)
    lengths = texts.lengths(np.arange(len(texts.tokens)))

    def prepare(job: Job) -> Callable[[tuple[int, int]], pa.RecordBatch]:
        job.place(model)
        return lambda block: compute(job, np.arange(*block))

    files = [options.tokens]
    return compute_shard(stage, options, options.shard, lengths, size, prepare, write, decisive, files, items=items)


def refuse_others(
    wanted: npt.NDArray[np.bool_],
    ids: pa.Array | pa.ChunkedArray,
    place: str | Path,
    found: str,
    expected: str = "finite numbers",
    what: str = "text",
) -> None:
    """Refuse the first text, or pair, whose numbers are not as wanted, (texts,).

    :param found: what is wrong, and in which precision; `what` the ids are those of.
    """
    if not wanted.all():
        found += f" of the {what} {shorten(ids[int(wanted.argmin())].as_py())}"
        raise input_error(place, found, expected, "use precision fp32, or train the model again")


def table_writer(output: str, schema: pa.Schema) -> Callable[[Iterator[pa.RecordBatch], int, str], None]:
    """Make the function with which `compute_shard` writes a parquet table."""

    def write(batches: Iterator[pa.RecordBatch], _: int, precision: str) -> None:
        with tables.open_writer(output, schema.with_metadata({KEY: precision})) as writer:
            for batch in batches:
                writer.write_batch(batch)

    return write

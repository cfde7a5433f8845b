"""Run a model on one shard of texts, on a leased device; imports torch only then.

Texts are divided into groups of fixed size, and a shard is a sequence of complete groups, so the number of shards does
not change the result. A group with many tokens is computed in several blocks, which a thread of its own writes. With a
folder of checkpoints, finished blocks are kept until the shard is complete, and an interrupted shard resumes after the
last of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.config.models import Precise
from cort.formats import tables
from cort.formats.checkpoints import FinishedBlocks, Made
from cort.formats.records import Integers
from cort.formats.shards import KEY, shard_range
from cort.models.batching import BATCHES_PER_BLOCK, TOKEN_BUDGETS, FramedTexts, Lengths
from cort.models.layout import identity
from cort.models.light import LightEncoder
from cort.models.truncation import log_truncation
from cort.runtime.background import in_background
from cort.runtime.command_line import places_of
from cort.runtime.devices import lease
from cort.runtime.errors import input_error, shorten
from cort.runtime.progress import Counter
from cort.runtime.sections import ArrowFile, FolderPath, Maybe, Metavar, ParquetFile, Text, Threads

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

# Texts per block, whose token vectors or weights of the vocabulary are in memory at once. Not a setting, as padding
# affects the last bits.
TOKEN_BLOCK = 1_024

#: computes the texts in some rows
Compute: TypeAlias = Callable[["Job", Integers], pa.RecordBatch]
#: writes the batches of a shard; called with its number of texts, and the precision
Write: TypeAlias = Callable[[Iterator[pa.RecordBatch], int, str], None]


class ModelOptions(Precise):
    """Options of stages that run a model and can resume after the last finished block."""

    model: FolderPath
    threads: Threads = 1
    checkpoints: Maybe[FolderPath] = None
    """Keep finished blocks here until the output is complete."""
    output: ParquetFile


class PassageOptions(ModelOptions):
    """Options of stages that run a model on a shard of the passages."""

    tokens: ArrowFile
    """Token cache of the passages."""
    shard: Annotated[Text, Metavar("I-of-N")] = "1-of-1"


class Job(NamedTuple):
    """Where and in which precision the model runs, and the counter of texts."""

    device: torch.device
    precision: str
    counter: Counter


def blocks_of(lengths: Lengths, shard: str, size: int, most: int) -> list[tuple[int, int]]:
    """Divide the texts of shard "i-of-n" into blocks of consecutive rows, at most `size` and about `most` tokens.

    Shards are as even as possible, and begin at multiples of `size`, so that `most` may differ between them.

    :returns: the first row of each block, and the row after its last.
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
    model: Any,
    lengths: Lengths,
    size: int,
    compute: Compute,
    write: Write,
    items: str = "texts",
    counts: bool = False,
) -> None:
    """Place a model, compute the blocks of a shard except finished ones, and write all.

    Blocks are identified by all options that are neither paths nor about speed, and by the files that others name.

    :param stage: name and command.
    :param lengths: tokens of each text, of all shards; a batch in the output has `size` texts.
    :param items: what the log calls the texts.
    :param counts: whether `compute` counts them; else each row of the model's output is one.
    """
    shard = vars(options).get("shard", "1-of-1")
    with _placed(model, options, shard) as (device, precision):
        ranges = blocks_of(lengths, shard, size, BATCHES_PER_BLOCK * TOKEN_BUDGETS[device.type])
        numbers, count = [start for start, _ in ranges], sum(end - start for start, end in ranges)
        settings = {"device": device.type, "precision": precision} | {
            name: value
            for name, value in options
            if name not in ("precision", "threads", "shard", *(place.option for place in places_of(options)))
        }
        files = [place.path for place in places_of(options) if not place.is_output]
        files = [path for path in files if path not in (options.model, options.checkpoints)]
        finished = FinishedBlocks(options.checkpoints, partial(identity, stage, settings, files, options.model))
        blocks = list(zip(numbers, ranges, strict=True))
        with Counter(count, items) as counter:
            job = Job(device, precision, counter)
            if not counts and not isinstance(model, LightEncoder):
                model.register_forward_hook(lambda module, inputs, outputs: counter.advance(len(outputs)))

            def write_blocks(made: Iterator[Made]) -> None:
                tables_of = tables.regroup(finished.keeping(made), size)
                write((table.combine_chunks().to_batches()[0] for table in tables_of), count, precision)

            made = finished.each(blocks, lambda block: compute(job, np.arange(*block)), counter)
            in_background(made, write_blocks)
    finished.remove(numbers)
    log.info("computed %d of %d %s on %s in %s", count, len(lengths), items, device.type, precision)


@contextmanager
def _placed(model: Any, options: ModelOptions, shard: str) -> Iterator[tuple[Any, str]]:
    """Place a model on a leased device; yield the device and the precision that `auto` stands for there."""
    if isinstance(model, LightEncoder):
        yield SimpleNamespace(type="cpu"), "fp32"
        return
    from cort.models.precision import forget, settle
    from cort.models.transformer import choose_device

    with lease() as leased:
        device = choose_device(options.threads, leased)
        precision = settle(options.precision, device, options.checkpoints)
        model.place(device, precision)
        yield device, precision
        if shard == "1-of-1":
            forget(options.checkpoints)


def compute_texts(
    stage: str,
    options: PassageOptions,
    model: Any,
    texts: FramedTexts,
    size: int,
    compute: Compute,
    write: Write,
    items: str = "texts",
    generated: int = 0,
) -> None:
    """Compute a shard of framed texts with `compute_shard`, and log how much of them is truncated.

    :param generated: tokens that the model writes for each text at most.
    """
    log_truncation(log, options.tokens, texts.tokens.lengths, texts.max_length - texts.template.extra)
    lengths = texts.lengths(np.arange(len(texts.tokens))) + generated
    compute_shard(stage, options, model, lengths, size, compute, write, items)


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


def table_writer(output: str, schema: pa.Schema) -> Write:
    """Make the function with which `compute_shard` writes a parquet table."""

    def write(batches: Iterator[pa.RecordBatch], _: int, precision: str) -> None:
        with tables.open_writer(output, schema.with_metadata({KEY: precision})) as writer:
            for batch in batches:
                writer.write_batch(batch)

    return write

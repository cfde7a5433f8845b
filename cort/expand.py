"""Predict queries that passages answer, one shard of the blocks at a time (doc2query, docTTTTTquery).

By sampling (Nogueira & Lin, 2019), or with `beams` the most probable ones (Nogueira et al., 2019). The passages are cut
into blocks of fixed size and a shard is a run of whole blocks; what is drawn depends on seed, passage and query alone.
So the number of shards changes no byte. With a folder of checkpoints, finished blocks are kept there until the shard is
whole: a shard that was ended goes on after its last one.

Reads a model folder of an encoder-decoder and a token cache; writes doc_id and queries of each passage, as parquet.

Usage: python -m cort.expand --model base_models/t5 --tokens passages.arrow --queries 40 --shard 1-of-4
              --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.blocks import FinishedBlocks, ShardOptions, shard_blocks
from cort.formats.tokens import Tokens
from cort.models.settings import LONGEST_QUERY, Precision
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.retrieval.options import check_positive
from cort.system import cli
from cort.system.devices import lease
from cort.system.errors import input_error, shorten
from cort.system.options import optional, required, thread_count
from cort.system.progress import Counter

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

    from cort.models.expander import Passages
    from cort.models.generation import Generator

log = logging.getLogger(__name__)

# Passages sorted by length together. Part of the result, as padding changes the last bits: not a setting.
BLOCK = 1_024
# Tokens of passages that queries are written about at a time, once for each query: their keys and values are kept, of a
# T5-base in fp32 74 kB each. Part of the result, too.
TOKEN_BUDGETS = {"cpu": 16_384, "cuda": 65_536}


@dataclass(frozen=True, kw_only=True)
class Options(ShardOptions):
    """Options of this stage."""

    model: str = required("FOLDER")
    tokens: str = required("ARROW", "token cache of the passages")
    queries: int = optional(40, "of each passage", "N")
    top_k: int = optional(10, "most probable tokens that the next one is drawn from", "K")
    beams: int | None = optional(None, "instead of drawing, take the first queries of a beam search so wide", "N")
    passage_length: int = optional(512, "tokens, special ones included")
    query_length: int = optional(64, "tokens, the end included")
    precision: Precision = optional("fp32")
    seed: int = optional(42)
    threads: int = thread_count()
    output: str = required("PARQUET")


# What decides the queries, beside the model and the tokens.
DECISIVE = ("queries", "top_k", "beams", "passage_length", "query_length", "precision", "seed")


def generate(
    rows: npt.NDArray[np.int64], generator: Generator, passages: Passages, device: torch.device, options: Options
) -> Tensor:
    """Generate the queries of some rows; tokens of shape (rows, queries, length).

    :raises InputError: a number that is not finite.
    """
    import torch

    from cort.models.generation import numbers_of

    sequences = passages.sequences(rows)
    batch = {name: one.to(device) for name, one in sequences.batch(np.arange(len(rows))).items()}
    try:
        if options.beams is not None:
            return generator.search(batch, options.beams, options.queries, options.query_length)
        doc_ids = [passages.tokens.ids[int(row)].as_py() for row in rows]
        numbers = [numbers_of(options.seed, doc_id, options.queries, options.query_length) for doc_id in doc_ids]
        return generator.sample(batch, torch.from_numpy(np.stack(numbers)).to(device), options.top_k)
    except FloatingPointError:
        ids = shorten(passages.tokens.ids[int(rows[0])].as_py())
        found = f"in {options.precision} a number that is not finite, in {len(rows)} passages from {ids} on"
        raise input_error(options.model, found, "finite numbers", "use precision fp32 or another model") from None


def expand_block(
    block: tuple[int, int],
    generate_rows: Callable[[npt.NDArray[np.int64]], Tensor],
    ends: Container[int],
    passages: Passages,
    tokenizer: Tokenizer,
    budget: int,
) -> pa.RecordBatch:
    """Predict the queries of the rows from the first to before the second, batch by batch of similar lengths."""
    import torch

    from cort.models.batching import by_length

    rows = np.arange(*block)
    found: list[list[str]] = [[] for _ in rows]
    for members in by_length(passages.lengths(rows), budget):
        with torch.inference_mode():
            tokens = generate_rows(rows[members]).cpu()
        for member, own in zip(members.tolist(), tokens.tolist(), strict=True):
            found[member] = texts_of(own, ends, tokenizer)
    ids = passages.tokens.ids.slice(block[0], len(rows)).combine_chunks()
    return pa.record_batch([ids, pa.array(found, tables.EXPANSIONS.field("queries").type)], schema=tables.EXPANSIONS)


def texts_of(queries: Sequence[list[int]], ends: Container[int], tokenizer: Tokenizer) -> list[str]:
    """Read token ids up to their end, without special ones; those of nothing but these are left out."""
    until = [next((place for place, token in enumerate(one) if token in ends), None) for one in queries]
    texts = tokenizer.decode_batch([one[:end] for one, end in zip(queries, until, strict=True)])
    return [text for text in (" ".join(one.split()) for one in texts) if text]


def stage(options: Options) -> None:
    """Generate and write."""
    from cort.models.expander import Passages, load_expander
    from cort.models.generation import Generator
    from cort.models.transformer import choose_device, identity, place, resumable

    check(options)
    transformer, template = load_expander(options.model, options.passage_length, options.query_length)
    tokens, tokenizer = Tokens(options.tokens, fingerprint(options.model)), load_tokenizer(options.model)
    passages = Passages(tokens, template, options.passage_length)
    blocks = shard_blocks(len(tokens), options.shard, BLOCK)
    count = sum(end - start for start, end in blocks)
    with lease() as leased, tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        device = choose_device(options.threads, leased)
        decisive = {name: getattr(options, name) for name in DECISIVE} | {"device": device.type}
        identify = partial(identity, "cort.expand", decisive, [options.tokens], options.model)
        finished = FinishedBlocks(options.checkpoints, identify)
        place(transformer, transformer, device, options.precision)
        numbered = [(start // BLOCK, (start, end)) for start, end in blocks]
        written = 0
        with Counter(count, "passages") as counter:
            # A batch may take long: each step shows that it goes on.
            transformer.register_forward_hook(lambda *_: counter.advance(0))
            generator = Generator(transformer)
            compute = partial(generate, generator=generator, passages=passages, device=device, options=options)
            make = partial(
                expand_block,
                generate_rows=resumable(compute, finished, device, counter),
                ends=generator.ends,
                passages=passages,
                tokenizer=tokenizer,
                budget=TOKEN_BUDGETS[device.type] // (options.beams or options.queries),
            )
            for batch in finished.each(numbered, make, counter):
                writer.write_batch(batch)
                written += len(pa.compute.list_flatten(batch["queries"]))
    finished.remove(number for number, _ in numbered)
    log.info("%d queries of %d of %d passages on %s in %s", written, count, len(tokens), device, options.precision)


def check(options: Options) -> None:
    """Refuse numbers that nothing can be generated with."""
    for name in ("queries", "top_k", "query_length"):
        check_positive(options, name)
    if options.query_length > LONGEST_QUERY:
        raise input_error("--query-length", str(options.query_length), f"at most {LONGEST_QUERY}", "lower it")
    if options.beams is not None and options.beams < options.queries:
        found, expected = str(options.beams), f"the {options.queries} queries or more"
        raise input_error("--beams", found, expected, "raise it or lower --queries")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

"""Document expansion: predict queries that passages answer (doc2query, docTTTTTquery), one shard at a time.

Queries are sampled (Nogueira & Lin, 2019), or with `beams` the most probable ones are found (Nogueira et al., 2019).
What is sampled depends only on seed, passage and query. `cort/models/shards.py` explains shards and checkpoints.

Reads a model folder of an encoder-decoder and a token cache; writes doc_id and queries of each passage as parquet.

Usage: python -m cort.expand --model base_models/t5 --tokens passages.arrow --queries 40 --shard 1-of-4
              --output passages.1-of-4.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.settings import LONGEST_QUERY
from cort.models.shards import PassageOptions, Run, write_shard
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.retrieval.options import check_positive
from cort.settings import lexical
from cort.settings.fields import SEED
from cort.system import cli
from cort.system.errors import input_error, shorten
from cort.system.options import optional

if TYPE_CHECKING:
    import torch
    from tokenizers import Tokenizer
    from torch import Tensor

    from cort.models.batching import FramedTexts
    from cort.models.expander import Generator

log = logging.getLogger(__name__)

# Passages that are sorted by length together. Not a setting: padding changes the last bits of the result.
BLOCK = 1_024
# Passage tokens per batch, counted once per query: their keys and values are cached, 74 kB each for a T5-base in fp32.
# Not a setting either.
TOKEN_BUDGETS = {"cpu": 16_384, "cuda": 65_536}


@dataclass(frozen=True, kw_only=True)
class Options(PassageOptions):
    """Options of this stage."""

    queries: int = optional(lexical.Expander.queries, "per passage", "N")
    top_k: int = optional(lexical.Expander.top_k, "sample the next token from the K most probable ones", "K")
    beams: int | None = optional(None, "instead of sampling, take the best queries of a beam search of this width", "N")
    passage_length: int = optional(lexical.Expander.passage_length, "tokens, special tokens included")
    query_length: int = optional(lexical.Expander.query_length, "tokens, including the one that ends it")
    seed: int = optional(SEED)


# Options that the queries depend on, besides the model and the tokens.
DECISIVE = ("queries", "top_k", "beams", "passage_length", "query_length", "precision", "seed")


def generate(
    rows: npt.NDArray[np.int64], generator: Generator, passages: FramedTexts, device: torch.device, options: Options
) -> Tensor:
    """Generate the queries of some rows; tokens of shape (rows, queries, length).

    :raises InputError: for a NaN or infinite value.
    """
    import torch

    from cort.models.expander import numbers_of

    sequences = passages.sequences(rows)
    batch = {name: tensor.to(device) for name, tensor in sequences.batch(np.arange(len(rows))).items()}
    try:
        if options.beams is not None:
            return generator.search(batch, options.beams, options.queries, options.query_length)
        doc_ids = [passages.tokens.ids[int(row)].as_py() for row in rows]
        numbers = [numbers_of(options.seed, doc_id, options.queries, options.query_length) for doc_id in doc_ids]
        return generator.sample(batch, torch.from_numpy(np.stack(numbers)).to(device), options.top_k)
    except FloatingPointError:
        doc_id = shorten(passages.tokens.ids[int(rows[0])].as_py())
        found = f"in {options.precision} NaN or infinite values, in a batch of {len(rows)} passages that has {doc_id}"
        raise input_error(options.model, found, "finite numbers", "use precision fp32 or another model") from None


def expand_block(
    block: tuple[int, int],
    generate_rows: Callable[[npt.NDArray[np.int64]], Tensor],
    ends: Container[int],
    passages: FramedTexts,
    tokenizer: Tokenizer,
    budget: int,
) -> pa.RecordBatch:
    """Predict the queries of the passages from the first row to before the second, in batches of similar length."""
    import torch

    from cort.models.batching import by_length

    rows = np.arange(*block)
    queries: list[list[str]] = [[] for _ in rows]
    for members in by_length(passages.lengths(rows), budget):
        with torch.inference_mode():
            tokens = generate_rows(rows[members]).cpu()
        for member, generated in zip(members.tolist(), tokens.tolist(), strict=True):
            queries[member] = texts_of(generated, ends, tokenizer)
    ids = passages.tokens.ids.slice(block[0], len(rows)).combine_chunks()
    return pa.record_batch([ids, pa.array(queries, tables.EXPANSIONS.field("queries").type)], schema=tables.EXPANSIONS)


def texts_of(queries: Sequence[list[int]], ends: Container[int], tokenizer: Tokenizer) -> list[str]:
    """Decode token ids up to the end, without special tokens; empty queries are left out."""
    texts = tokenizer.decode_batch([list(takewhile(lambda token: token not in ends, tokens)) for tokens in queries])
    return [text for text in (" ".join(text.split()) for text in texts) if text]


def stage(options: Options) -> None:
    """Predict and write."""
    from cort.models.batching import FramedTexts
    from cort.models.expander import Generator, load_expander
    from cort.models.transformer import place, resumable

    check(options)
    transformer, template = load_expander(options.model, options.passage_length, options.query_length)
    tokens, tokenizer = Tokens(options.tokens, fingerprint(options.model)), load_tokenizer(options.model)
    passages = FramedTexts(tokens, template, options.passage_length)

    def prepare(run: Run) -> partial[pa.RecordBatch]:
        place(transformer, transformer, run.device, options.precision)
        # A batch may take long; each step shows that work continues.
        transformer.register_forward_hook(lambda *_: run.counter.advance(0))
        generator = Generator(transformer)
        compute = partial(generate, generator=generator, passages=passages, device=run.device, options=options)
        return partial(
            expand_block,
            generate_rows=resumable(compute, run.finished, run.device, run.counter),
            ends=generator.ends,
            passages=passages,
            tokenizer=tokenizer,
            budget=TOKEN_BUDGETS[run.device.type] // (options.beams or options.queries),
        )

    done = write_shard("cort.expand", options, tables.EXPANSIONS, len(tokens), BLOCK, prepare, DECISIVE)
    log.info("predicted queries: %s", done)


def check(options: Options) -> None:
    """Refuse options that nothing can be generated with."""
    for name in ("queries", "top_k", "query_length"):
        check_positive(options, name)
    if options.query_length > LONGEST_QUERY:
        raise input_error("--query-length", str(options.query_length), f"at most {LONGEST_QUERY}", "lower it")
    if options.beams is not None and options.beams < options.queries:
        expected = f"{options.queries} or more, as many as --queries"
        raise input_error("--beams", str(options.beams), expected, "raise it or lower --queries")


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

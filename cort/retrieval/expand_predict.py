"""Document expansion: predict the queries that a passage answers (doc2query, docTTTTTquery), one shard at a time.

Queries are sampled (Nogueira & Lin, 2019) or, with `beams`, found by beam search (Nogueira et al., 2019). Samples
depend on the seed and on the batch of a passage, and batches on the collection. `cort/models/shards.py` explains
shards and checkpoints.

Reads the model folder of an encoder-decoder and a token cache; writes the doc_id and queries of each passage as
parquet.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.config.fields import Seed
from cort.config.lexical import BeamSearch, Sampling
from cort.formats import tables
from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, by_length
from cort.models.shards import Job, PassageOptions, compute_texts, table_writer
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.retrieval.documents import hash_of
from cort.runtime.errors import input_error, shorten
from cort.runtime.sections import Maybe, same_as

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from cort.models.expander import Expander


# Passages sorted by length together. Not a setting, because padding changes the last bits of the result.
EXPANDED_BLOCK = 1_024

# Passage tokens per batch, counted once per query: their keys and values are cached, 74 kB each for a T5-base in fp32.
# Not a setting either.
TOKEN_BUDGETS = {"cpu": 16_384, "cuda": 65_536}


class Options(PassageOptions):
    """Options of this stage."""

    queries: int = same_as(Sampling, "queries")
    top_k: int = same_as(Sampling, "top_k")
    beams: Maybe[int] = same_as(BeamSearch, "beams", default=None)
    passage_length: int = same_as(Sampling, "passage_length")
    query_length: int = same_as(Sampling, "query_length")
    seed: int = same_as(Seed, "seed")


def expand_block(
    job: Job, rows: Integers, expander: Expander, passages: FramedTexts, tokenizer: Tokenizer, options: Options
) -> pa.RecordBatch:
    """Predict queries for the passages in some rows, in batches of similar length; drop empty queries.

    :raises InputError: for NaN or infinite values.
    """
    import torch

    ids = passages.ids(rows)
    queries: list[list[str]] = [[] for _ in rows]
    budget = TOKEN_BUDGETS[job.device.type] // (options.beams or options.queries)
    for members in by_length(passages.lengths(rows), budget):
        tensors = passages.sequences(rows[members]).batch(np.arange(len(members)))
        batch = {name: tensor.to(job.device) for name, tensor in tensors.items()}
        # Batches depend on the collection alone, not on the number of jobs or on interruptions.
        first = ids[int(members[0])].as_py()
        try:
            with torch.inference_mode():
                tokens = expander(batch, hash_of(options.seed, first) % 2**63).tolist()
        except FloatingPointError:
            found = f"NaN or infinite values in {job.precision}, in a batch of {len(members)} passages that "
            found += f"includes {shorten(first)}"
            raise input_error(options.model, found, "finite numbers", "use precision fp32 or another model") from None
        for member, generated in zip(members.tolist(), tokens, strict=True):
            texts = (" ".join(text.split()) for text in tokenizer.decode_batch(generated))
            queries[member] = [text for text in texts if text]
    return pa.record_batch([ids, queries], schema=tables.EXPANSIONS)


def stage(options: Options) -> None:
    """Predict the queries of one shard and write them."""
    from cort.models.expander import Sampling, load_expander

    sampling = Sampling(options.queries, options.query_length, options.top_k, options.beams)
    expander, template = load_expander(options.model, options.passage_length, sampling)
    tokens, tokenizer = Tokens(options.tokens, fingerprint(options.model)), load_tokenizer(options.model)
    passages = FramedTexts(tokens, template, options.passage_length)
    compute = partial(expand_block, expander=expander, passages=passages, tokenizer=tokenizer, options=options)
    write, generated = table_writer(options.output, tables.EXPANSIONS), options.queries * options.query_length
    compute_texts(__name__, options, expander, passages, EXPANDED_BLOCK, compute, write, "passages", generated)

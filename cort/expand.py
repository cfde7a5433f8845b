"""Expand passages by predicted queries (doc2query): predict or import them.

Usage: python -m cort.expand predict --model base_models/t5 --tokens passages.arrow --queries 40 --shard 1-of-4
           --output passages.1-of-4.parquet
       python -m cort.expand import --predictions predicted_queries_topk_sampling.zip --queries 40
           --passages passages.parquet --output expansions.parquet
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from cort.formats import tables
from cort.formats.expansions import Queries, iter_predictions
from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, by_length
from cort.models.shards import Job, PassageOptions, compute_texts, table_writer
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.retrieval.documents import hash_of
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error, shorten
from cort.runtime.options import options_class, required
from cort.runtime.progress import track
from cort.settings import lexical
from cort.settings.fields import General, as_key

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from cort.models.expander import Expander

log = logging.getLogger(__name__)


# Passages sorted by length together. Not a setting, because padding changes the last bits of the result.
EXPANDED_BLOCK = 1_024
# Passage tokens per batch, counted once per query: their keys and values are cached, 74 kB each for a T5-base in fp32.
# Not a setting either.
TOKEN_BUDGETS = {"cpu": 16_384, "cuda": 65_536}


@options_class
class Options(PassageOptions):
    """Document expansion: predict the queries that a passage answers (doc2query, docTTTTTquery), one shard at a time.

    Queries are sampled (Nogueira & Lin, 2019) or, with `beams`, found by beam search (Nogueira et al., 2019). Samples
    depend on the seed and on the batch of a passage, and batches on the collection. `cort/models/shards.py` explains
    shards and checkpoints.

    Reads the model folder of an encoder-decoder and a token cache; writes the doc_id and queries of each passage as
    parquet.
    """

    queries: int = as_key(lexical.Expander, "queries")
    top_k: int = as_key(lexical.Expander, "top_k")
    beams: int | None = as_key(lexical.Expander, "beams")
    passage_length: int = as_key(lexical.Expander, "passage_length")
    query_length: int = as_key(lexical.Expander, "query_length")
    seed: int = as_key(General, "seed")


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


def predict_queries(options: Options) -> None:
    """Predict the queries of one shard and write them."""
    from cort.models.expander import Sampling, load_expander

    sampling = Sampling(options.queries, options.query_length, options.top_k, options.beams)
    expander, template = load_expander(options.model, options.passage_length, sampling)
    tokens, tokenizer = Tokens(options.tokens, fingerprint(options.model)), load_tokenizer(options.model)
    passages = FramedTexts(tokens, template, options.passage_length)
    compute = partial(expand_block, expander=expander, passages=passages, tokenizer=tokenizer, options=options)
    write, generated = table_writer(options.output, tables.EXPANSIONS), options.queries * options.query_length
    compute_texts(
        "cort.expand predict", options, expander, passages, EXPANDED_BLOCK, compute, write, "passages", generated
    )


ROWS = 16_384
OTHER = "name the predictions for this collection, in its order"


def join(passages: Iterator[pa.RecordBatch], predictions: Iterator[Queries], source: str) -> Iterator[pa.Table]:
    """Yield the doc_id and queries of each passage.

    :raises InputError: if `source` has too few or too many lines.
    """
    done = 0
    for batch in passages:
        queries = list(islice(predictions, batch.num_rows))
        if len(queries) < batch.num_rows:
            found = f"{done + len(queries)} lines for more passages"
            raise input_error(source, found, "a line for each passage", OTHER)
        columns = [batch["doc_id"], pa.array(queries, pa.list_(pa.string()))]
        yield pa.table(columns, schema=tables.EXPANSIONS)
        done += batch.num_rows
    if next(predictions, None) is not None:
        raise input_error(source, f"more lines than the {done} passages", "a line for each passage", OTHER)


@options_class
class ImportOptions:
    """Import published document expansions: queries that doc2query or docTTTTTquery predicted for this collection.

    Such files contain no ids: each line belongs to the passage on the same line of the collection. The numbers of lines
    must therefore agree.

    Reads:  the predictions (layouts: cort/formats/expansions.py), passages.parquet
    Writes: the doc_id and queries of each passage, as parquet, in the order of the passages
    """

    predictions: str = required("FILE", "predicted queries, .txt, .txt.gz, .tar.gz or .zip")
    queries: int | None = as_key(lexical.Expander, "queries", "samples to take from a .zip", "N", default=None)
    passages: str = required("PARQUET", "the collection")
    output: str = required("PARQUET")


def import_queries(options: ImportOptions) -> None:
    """Pair the predictions with the passages and write them."""
    batches = tables.iter_batches(options.passages, tables.PASSAGES, ROWS)
    predictions = iter_predictions(options.predictions, options.queries)
    rows = tables.count_rows(options.passages, tables.PASSAGES)
    count = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for table in track(join(batches, predictions, options.predictions), rows, "passages", size=len):
            writer.write_table(table)
            count += len(pa.compute.list_flatten(table["queries"]))
    log.info("%d queries for %d passages", count, rows)


COMMANDS: Commands = {
    "predict": (Options, predict_queries),
    "import": (ImportOptions, import_queries),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())

"""Expand passages by predicted queries (doc2query): predict, import, score and filter them.

Usage: python -m cort.expand predict --model base_models/t5 --tokens passages.arrow --queries 40 --shard 1-of-4
           --output passages.1-of-4.parquet
       python -m cort.expand import --predictions predicted_queries_topk_sampling.zip --queries 40
           --passages passages.parquet --output expansions.parquet
       python -m cort.expand score --model rerankers/cross/best --tokens passages.arrow --shard 1-of-4
           --expansions expansions.parquet --output passages.1-of-4.parquet
       python -m cort.expand filter --expansions expansions.parquet --scores passages.1-of-1.parquet --keep 0.3
           --output filtered.parquet --output-counts filter.json
"""

from __future__ import annotations

import logging
import math
import re
import sys
from collections import deque
from collections.abc import Callable, Container, Iterator, Sequence
from functools import partial
from itertools import chain, islice, takewhile
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.artifacts import write_artifact
from cort.formats.cleaning import Form, convert
from cort.formats.expansions import OTHERS, Queries, iter_predictions, parts_of
from cort.formats.ids import alphabetic_codes
from cort.formats.lines import place_of
from cort.formats.records import Integers, offsets_of
from cort.formats.shards import Tokens
from cort.models.layout import read_prompts
from cort.models.shards import Job, PassageOptions, Ranges, compute_shard, table_writer
from cort.models.tokenizer import fingerprint, load_tokenizer, refusing
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error, shorten
from cort.runtime.options import optional, options_class, required
from cort.runtime.progress import track
from cort.settings import lexical
from cort.settings.fields import General, as_key
from cort.settings.lexical import ExpansionFilter
from cort.settings.models import BaseModel

if TYPE_CHECKING:
    from tokenizers import Tokenizer
    from torch import Tensor

    from cort.models.batching import FramedTexts
    from cort.models.expander import Generator
    from cort.models.rerankers import Reranker

log = logging.getLogger(__name__)


# Passages sorted by length together. Not a setting, because padding changes the last bits of the result.
EXPANDED_BLOCK = 1_024
# Passage tokens per batch, counted once per query: their keys and values are cached, 74 kB each for a T5-base in fp32.
# Not a setting either.
TOKEN_BUDGETS = {"cpu": 16_384, "cuda": 65_536}


@options_class
class ExpandOptions(PassageOptions):
    """Document expansion: predict the queries that a passage answers (doc2query, docTTTTTquery), one shard at a time.

    Queries are sampled (Nogueira & Lin, 2019) or, with `beams`, found by beam search (Nogueira et al., 2019). A sample
    depends only on the seed, the passage and the number of the query. `cort/models/shards.py` explains shards and
    checkpoints.

    Reads the model folder of an encoder-decoder and a token cache; writes the doc_id and queries of each passage as
    parquet.
    """

    queries: int = as_key(lexical.Expander, "queries")
    top_k: int = as_key(lexical.Expander, "top_k")
    beams: int | None = as_key(lexical.Expander, "beams")
    passage_length: int = as_key(lexical.Expander, "passage_length")
    query_length: int = as_key(lexical.Expander, "query_length")
    seed: int = as_key(General, "seed")


def generate(
    rows: Integers,
    generator: Generator,
    passages: FramedTexts,
    job: Job,
    options: ExpandOptions,
) -> Tensor:
    """Generate queries for the passages in some rows; returns tokens of shape (rows, queries, length).

    :raises InputError: for NaN or infinite values.
    """
    import torch

    from cort.models.expander import numbers_of

    sequences = passages.sequences(rows)
    batch = {name: tensor.to(job.device) for name, tensor in sequences.batch(np.arange(len(rows))).items()}
    job.counter.advance(len(rows))
    try:
        if options.beams is not None:
            return generator.search(batch, options.beams, options.queries, options.query_length)
        doc_ids = [passages.tokens.ids[int(row)].as_py() for row in rows]
        numbers = [numbers_of(options.seed, doc_id, options.queries, options.query_length) for doc_id in doc_ids]
        return generator.sample(batch, torch.from_numpy(np.stack(numbers)).to(job.device), options.top_k)
    except FloatingPointError:
        doc_id = shorten(passages.tokens.ids[int(rows[0])].as_py())
        found = (
            f"NaN or infinite values in {options.precision}, in a batch of {len(rows)} passages that includes {doc_id}"
        )
        raise input_error(options.model, found, "finite numbers", "use precision fp32 or another model") from None


def expand_block(
    block: tuple[int, int],
    generate_rows: Callable[[Integers], Tensor],
    ends: Container[int],
    passages: FramedTexts,
    tokenizer: Tokenizer,
    budget: int,
) -> pa.RecordBatch:
    """Predict queries for the passages in a range of rows, in batches of similar length."""
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
    """Decode token ids up to the end token, without special tokens; drop empty queries."""
    texts = tokenizer.decode_batch([list(takewhile(lambda token: token not in ends, tokens)) for tokens in queries])
    return [text for text in (" ".join(text.split()) for text in texts) if text]


def predict_queries(options: ExpandOptions) -> None:
    """Predict the queries of one shard and write them."""
    from cort.models.batching import FramedTexts
    from cort.models.expander import Generator, load_expander
    from cort.models.precision import place

    check(options)
    transformer, template = load_expander(options.model, options.passage_length, options.query_length)
    tokens, tokenizer = Tokens(options.tokens, fingerprint(options.model)), load_tokenizer(options.model)
    passages = FramedTexts(tokens, template, options.passage_length)

    def prepare(job: Job) -> partial[pa.RecordBatch]:
        place(transformer, transformer, job.device, job.precision)
        # A batch may take long; updating the counter at each step shows that work goes on.
        transformer.register_forward_hook(lambda *_: job.counter.advance(0))
        generator = Generator(transformer)
        return partial(
            expand_block,
            generate_rows=partial(generate, generator=generator, passages=passages, job=job, options=options),
            ends=generator.ends,
            passages=passages,
            tokenizer=tokenizer,
            budget=TOKEN_BUDGETS[job.device.type] // (options.beams or options.queries),
        )

    decisive = ("queries", "top_k", "beams", "passage_length", "query_length", "seed")
    write, files = table_writer(options.output, tables.EXPANSIONS), [options.tokens]
    # Tokens that are read and, at most, written.
    lengths = passages.lengths(np.arange(len(tokens))) + options.queries * options.query_length
    shard = options.shard
    done = compute_shard(
        "cort.expand predict", options, shard, lengths, EXPANDED_BLOCK, prepare, write, decisive, files
    )
    log.info("predicted queries for %s", done)


def check(options: ExpandOptions) -> None:
    """Refuse options with which nothing can be generated."""
    if options.beams is not None and options.beams < options.queries:
        expected = f"{options.queries} or more, as many as --queries"
        raise input_error("--beams", options.beams, expected, "raise it or lower --queries")


ROWS = 16_384
# To tell whether predictions fit the collection: passages compared per batch, fewest worth comparing, and how many rows
# away the other passages may be.
COMPARED = 200
FEWEST = 20
FURTHEST = 5
# Words of three letters or more, numbers, and single letters of the scripts from Thai on, most of which use no spaces.
WORD = re.compile(r"[^\W\u0e00-\U0010ffff]{3,}|\d+|[^\W\0-\u0dff]")
OTHER = "name the predictions for this collection, in its order"


def join(passages: Iterator[pa.RecordBatch], predictions: Iterator[Queries], source: str) -> Iterator[pa.Table]:
    """Yield the doc_id and queries of each passage.

    :raises InputError: if `source` has too few or too many lines.
    """
    done, warned = 0, False
    for batch in passages:
        queries = list(islice(predictions, batch.num_rows))
        if len(queries) < batch.num_rows:
            found = f"{done + len(queries)} lines for more passages"
            raise input_error(source, found, "a line for each passage", OTHER)
        if not warned and not fit(batch["text"].slice(0, COMPARED).to_pylist(), queries[:COMPARED]):
            warned = True
            last = done + min(len(queries), COMPARED)
            text = "%s: the queries of passages %d to %d share no more words with them than with others; if wrong, %s"
            log.warning(text, source, done + 1, last, OTHER)
        columns = [batch["doc_id"], pa.array(queries, pa.list_(pa.string()))]
        yield pa.table(columns, schema=tables.EXPANSIONS)
        done += batch.num_rows
    if next(predictions, None) is not None:
        raise input_error(source, f"more lines than the {done} passages", "a line for each passage", OTHER)


def fit(texts: Sequence[str], queries: Sequence[Queries]) -> bool:
    """Whether queries share words with their own texts, and at least as many as with the texts before and after."""
    in_texts = [set(WORD.findall(text.lower())) for text in texts]
    in_queries = [set(WORD.findall(" ".join(predicted).lower())) for predicted in queries]
    if len(texts) < FEWEST or not any(in_queries):
        return True

    def shared(shift: int) -> int:
        return sum(len(in_texts[(row + shift) % len(in_texts)] & words) for row, words in enumerate(in_queries))

    return shared(0) >= max(1, *(shared(shift) for shift in range(-FURTHEST, FURTHEST + 1) if shift))


@options_class
class ImportOptions:
    """Import published document expansions: queries that doc2query or docTTTTTquery predicted for this collection.

    Such files contain no ids: each line belongs to the passage on the same line of the collection. The numbers of lines
    must therefore agree, and the log warns if queries share no more words with their own passages than with their
    neighbours.

    Reads:  the predictions (layouts: cort/formats/expansions.py), passages.parquet
    Writes: the doc_id and queries of each passage, as parquet, in the order of the passages
    """

    predictions: str = required("FILE", "predicted queries, .txt, .txt.gz, .tar.gz or .zip")
    queries: int | None = optional(None, "samples to take from a .zip", "N")
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


# Passages whose queries are sorted by length together. Not a setting, because padding changes the last bits.
SCORED_BLOCK = 256


@options_class
class ScoreOptions(PassageOptions):
    """Score predicted queries with a re-ranker, each against its own passage, one shard at a time (Doc2Query--).

    `cort/models/shards.py` explains shards and checkpoints.

    Reads a re-ranker folder, a token cache of the passages and predicted queries; writes the doc_id of each passage and
    the scores of its queries as parquet.
    """

    expansions: tuple[str, ...] = required("PARQUET", "predicted queries, one row per passage, in order")
    cleaning: Form = as_key(BaseModel, "cleaning", "how the queries are cleaned first")


def score_block(
    block: tuple[int, pa.Table],
    model: Reranker,
    tokenizer: Tokenizer,
    passages: Tokens,
    job: Job,
    options: ScoreOptions,
) -> pa.RecordBatch:
    """Score the queries of a block: its first row, and the passages with their queries.

    :raises InputError: for queries of other passages, and for NaN or infinite scores.
    """
    import torch

    start, table = block
    ids = passages.ids.slice(start, table.num_rows).combine_chunks()
    if not ids.equals(table["doc_id"].combine_chunks()):
        found = f"other passages than in {options.tokens} after row {start}"
        raise input_error(options.expansions[0], found, *OTHERS)
    sizes = pc.list_value_length(table["queries"]).to_numpy()
    rows = np.repeat(np.arange(start, start + table.num_rows), sizes)
    scores = np.empty(0, np.float32)
    if len(rows):
        with refusing(options.model):
            texts = convert(pc.list_flatten(table["queries"].combine_chunks()), options.cleaning).to_pylist()
            before, after = read_prompts(options.model)["query"]
            texts = [f"{before}{text}{after}" for text in texts]
            encodings = tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        queries = Tokens.of_texts([np.array(encoding.ids, np.int32) for encoding in encodings])
        pairs = model.pairs(queries, passages)
        with torch.inference_mode():
            scores = pairs.score(model, np.arange(len(rows)), rows, job.device).float().cpu().numpy()
    if not np.isfinite(scores).all():
        doc_id = shorten(passages.ids[int(rows[~np.isfinite(scores)][0])].as_py())
        found = f"a NaN or infinite score in {job.precision}, for passage {doc_id}"
        raise input_error(options.model, found, "finite numbers", "use precision fp32 or another re-ranker")
    job.counter.advance(table.num_rows)
    lists = pa.ListArray.from_arrays(pa.array(offsets_of(sizes), "int32"), pa.array(scores))
    return pa.record_batch([ids, lists], schema=tables.EXPANSION_SCORES)


def iter_blocks(options: ScoreOptions, ranges: Ranges) -> Iterator[tuple[int, tuple[int, pa.Table]]]:
    """Yield (first row, (first row, predicted queries)) for each block."""
    files = chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions)
    left, done = deque(ranges), 0
    for table in tables.regroup(files, SCORED_BLOCK):
        while left and left[0][1] <= done + table.num_rows:
            start, end = left.popleft()
            yield start, (start, table.slice(start - done, end - start))
        done += table.num_rows
        if not left:
            return
    if left:
        raise input_error(options.expansions[-1], f"{done} rows for {left[-1][1]} passages", *OTHERS)


def tokens_of_pairs(options: ScoreOptions, passages: Tokens) -> Integers:
    """Estimate the tokens of each passage's pairs, as if all passages had as many queries as the first ones."""
    first = next(tables.iter_batches(options.expansions[0], tables.EXPANSIONS, SCORED_BLOCK), None)
    queries = len(pc.list_flatten(first["queries"])) // first.num_rows if first else 0
    return passages.lengths * max(queries, 1)


def score_queries(options: ScoreOptions) -> None:
    """Score the queries of one shard and write the scores."""
    from cort.models.rerankers import load_reranker

    model = load_reranker(options.model, options.precision)
    passages = Tokens(options.tokens, fingerprint(options.model))

    def prepare(job: Job) -> partial[pa.RecordBatch]:
        model.place(job.device, job.precision)
        # A block may take long; updating the counter at each batch shows that work goes on.
        model.register_forward_hook(lambda *_: job.counter.advance(0))
        tokenizer = load_tokenizer(options.model)
        return partial(
            score_block,
            model=model,
            tokenizer=tokenizer,
            passages=passages,
            job=job,
            options=options,
        )

    done = compute_shard(
        "cort.expand score",
        options,
        options.shard,
        tokens_of_pairs(options, passages),
        SCORED_BLOCK,
        prepare,
        table_writer(options.output, tables.EXPANSION_SCORES),
        decisive=("cleaning",),
        files=[options.tokens, *options.expansions],
        read=partial(iter_blocks, options),
    )
    log.info("scored predicted queries of %s", done)


def kept_queries(
    scores: npt.NDArray[np.float32], sizes: Integers, doc_ids: pa.Array, count: int
) -> npt.NDArray[np.bool_]:
    """Mark the `count` best queries by (-score, doc_id, position among the passage's queries); shape (queries,).

    :param sizes: number of queries of each passage; `scores` are in the order of passages and queries.
    """
    threshold = np.partition(scores, len(scores) - count)[len(scores) - count]
    kept: npt.NDArray[np.bool_] = scores > threshold
    ties = np.flatnonzero(scores == threshold)
    rows = np.searchsorted(np.cumsum(sizes), ties, side="right")
    order = np.lexsort((ties, alphabetic_codes(doc_ids.take(rows))))
    kept[ties[order[: count - int(kept.sum())]]] = True
    return kept


def read_queries(options: FilterOptions) -> Iterator[tuple[slice, pa.Array, pa.ListArray]]:
    """Yield predicted queries in batches: rows, doc_ids, lists of queries."""
    row = 0
    for batch in chain.from_iterable(tables.iter_batches(path, tables.EXPANSIONS) for path in options.expansions):
        yield slice(row, row + batch.num_rows), batch["doc_id"], batch["queries"]
        row += batch.num_rows


def filtered(options: FilterOptions, sizes: Integers, kept: npt.NDArray[np.bool_]) -> Iterator[pa.Table]:
    """Yield the predicted queries that are kept, in batches."""
    ends = offsets_of(sizes)
    for rows, doc_ids, queries in read_queries(options):
        places = ends[rows.start : rows.stop + 1]
        here = kept[places[0] : places[-1]]
        offsets = pa.array(offsets_of(here)[places - places[0]], "int32")
        lists = pa.ListArray.from_arrays(offsets, pc.list_flatten(queries).filter(here))
        yield pa.table([doc_ids, lists], schema=tables.EXPANSIONS)


def read_scores(path: str) -> pa.Table:
    """Read a file of scores; refuse NaN and infinite ones."""
    table = tables.read_table(path, tables.EXPANSION_SCORES).combine_chunks()
    wrong = pc.index(pc.is_finite(pc.list_flatten(table["scores"])), False).as_py()
    if wrong >= 0:
        row = pc.list_parent_indices(table["scores"])[wrong].as_py()
        found = f"a NaN or infinite score for passage {shorten(table['doc_id'][row].as_py())}"
        raise input_error(path, found, "finite numbers", OTHERS[1], row + 1)
    return table


def check_sizes(options: FilterOptions, doc_ids: pa.Array, sizes: Integers) -> None:
    """Refuse scores that do not belong to the predicted queries; the error names the file of scores."""
    count = 0
    for rows, ids, queries in read_queries(options):
        same = np.array_equal(sizes[rows], pc.list_value_length(queries).to_numpy())
        if not (same and doc_ids[rows].equals(ids)):
            parts = parts_of(options.scores, tables.EXPANSION_SCORES)
            inside = rows.start < len(doc_ids)
            path, row = place_of(parts, rows.start) if inside else (options.scores[-1], rows.start + 1)
            raise input_error(path, f"scores of other queries from row {row} on", *OTHERS)
        count = rows.stop
    if count != len(doc_ids):
        raise input_error(options.scores[-1], f"scores of {len(doc_ids)} passages, not of {count}", *OTHERS)


@options_class
class FilterOptions:
    """Keep the predicted queries that a re-ranker scores best (Doc2Query--, Gospodinov, MacAvaney & Macdonald, 2023).

    The threshold is the same for the whole collection, so a passage may keep all or none of its queries. Ties at the
    threshold are broken by doc_id, then by the order of a passage's queries.

    Reads:  predicted queries and their scores, one row per passage, in the order of the passages
    Writes: the queries that are kept, in the same format; their number and the lowest score as JSON
    """

    expansions: tuple[str, ...] = required("PARQUET", "predicted queries")
    scores: tuple[str, ...] = required("PARQUET", "their scores")
    keep: float = as_key(ExpansionFilter, "keep")
    output: str = required("PARQUET")
    output_counts: str = required("JSON")


def filter_queries(options: FilterOptions) -> None:
    """Keep the queries with the best scores and write them."""
    table = pa.concat_tables(map(read_scores, options.scores)).combine_chunks()
    doc_ids = pa.concat_arrays(table["doc_id"].chunks)
    sizes = pc.list_value_length(table["scores"]).to_numpy().astype(np.int64)
    scores = pc.list_flatten(table["scores"]).to_numpy()
    check_sizes(options, doc_ids, sizes)
    if not len(scores):
        fix = "name another file, or remove the filter"
        raise input_error(options.expansions[0], "no predicted query", "at least one to filter", fix)
    count = math.ceil(options.keep * len(scores))
    kept = kept_queries(scores, sizes, doc_ids, count)
    with_queries = 0
    with tables.open_writer(options.output, tables.EXPANSIONS) as writer:
        for part in filtered(options, sizes, kept):
            writer.write_table(part)
            with_queries += int(pc.sum(pc.greater(pc.list_value_length(part["queries"]), 0)).as_py() or 0)
        counts = {
            "queries": len(scores),
            "kept": count,
            "share": count / len(scores),
            "threshold": float(scores[kept].min()),
            "passages": len(doc_ids),
            "passages with a query that is kept": with_queries,
        }
        write_artifact(options.output_counts, counts)
    log.info("kept %d of %d queries, with scores of %g or more", count, len(scores), counts["threshold"])
    log.info("%d of %d passages keep a query", with_queries, len(doc_ids))


COMMANDS: Commands = {
    "predict": (ExpandOptions, predict_queries),
    "import": (ImportOptions, import_queries),
    "score": (ScoreOptions, score_queries),
    "filter": (FilterOptions, filter_queries),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())

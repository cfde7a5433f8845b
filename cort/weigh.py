"""Weight the terms of passages (DeepCT): predict term weights, or import weighted documents.

Usage: python -m cort.weigh predict --model base_models/deepct --tokens passages.arrow --shard 1-of-4
           --output passages.1-of-4.parquet
       python -m cort.weigh import --documents sample_100_jsonl.zip --passages passages.parquet
           --output term_weights.parquet
"""

from __future__ import annotations

import logging
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats import tables
from cort.formats.duplicates import refuse_duplicates
from cort.formats.expansions import Weighted, iter_documents, to_batch
from cort.formats.ids import positions
from cort.formats.lines import Parts, place_of
from cort.formats.records import Integers, offsets_of
from cort.formats.shards import Tokens
from cort.models.shards import Job, PassageOptions, compute_texts, refuse_others, table_writer
from cort.models.tokenizer import fingerprint
from cort.runtime.commands import Commands, main_of_commands
from cort.runtime.errors import input_error, shorten
from cort.runtime.files import temporary_folder
from cort.runtime.options import options_class, required
from cort.runtime.progress import track
from cort.settings import lexical
from cort.settings.fields import as_key

if TYPE_CHECKING:
    from cort.models.batching import FramedTexts
    from cort.models.weigher import Vocabulary, Weigher

log = logging.getLogger(__name__)


# Passages sorted by length together. Not a setting, because padding changes the last bits of the result.
BLOCK = 4_096


@options_class
class WeighOptions(PassageOptions):
    """Predict term weights with DeepCT, which replace the term frequencies of passages; one shard at a time.

    The weight of a word is the model's prediction for its first subword, scaled and rounded. Of several occurrences the
    greatest counts, and words of weight 0 are dropped (Dai & Callan, 2019). `cort/models/shards.py` explains shards and
    checkpoints.

    Reads a token-classification folder and a token cache; writes doc_id, terms and their weights as parquet.
    """

    passage_length: int = as_key(lexical.Weigher, "passage_length")
    scale: int = as_key(lexical.Weigher, "scale")
    square_root: bool = as_key(lexical.Weigher, "square_root")


def weigh_block(
    job: Job, rows: Integers, weigher: Weigher, passages: FramedTexts, vocabulary: Vocabulary, options: WeighOptions
) -> pa.RecordBatch:
    """Weight the terms of the passages in some rows.

    :raises InputError: for a NaN or infinite weight.
    """
    import torch

    from cort.models.transformer import forward_by_length
    from cort.models.weigher import term_weights, words_of

    with torch.inference_mode():
        numbers = forward_by_length(weigher, passages.sequences(rows), job.device).float().cpu().numpy()
    ids = passages.ids(rows)
    inside = np.arange(numbers.shape[1]) < passages.lengths(rows)[:, None]  # (rows, length)
    finite = (np.isfinite(numbers) | ~inside).all(axis=1)  # (rows,)
    refuse_others(finite, ids, options.model, f"in {job.precision} a weight that is no finite number")
    documents = []
    for doc_id, row, predicted in zip(ids.to_pylist(), rows.tolist(), numbers, strict=True):
        words, first = words_of(passages, vocabulary, row)
        weighed = term_weights(words, predicted[first].tolist(), options.scale, options.square_root)
        documents.append(Weighted(doc_id, list(weighed), list(weighed.values())))
    return to_batch(documents)


def predict_weights(options: WeighOptions) -> None:
    """Predict the term weights of one shard and write them."""
    from cort.models.batching import FramedTexts
    from cort.models.weigher import load_vocabulary, load_weigher

    vocabulary = load_vocabulary(options.model)
    weigher, template = load_weigher(options.model, options.passage_length)
    passages = FramedTexts(Tokens(options.tokens, fingerprint(options.model)), template, options.passage_length)
    compute = partial(weigh_block, weigher=weigher, passages=passages, vocabulary=vocabulary, options=options)
    write, decisive = table_writer(options.output, tables.TERM_WEIGHTS), ("passage_length", "scale", "square_root")
    done = compute_texts("cort.weigh predict", options, weigher, passages, BLOCK, compute, write, decisive, "passages")
    log.info("weighed %s", done)


def in_order(documents: pa.Table, doc_ids: pa.ChunkedArray, parts: Parts) -> Iterator[pa.Table]:
    """Yield documents in the order of the passages, in batches; a passage without a document gets no terms.

    :raises InputError: for a duplicate document, or one of another collection.
    """
    refuse_duplicates(parts, documents["doc_id"], "id")
    known = pc.is_in(documents["doc_id"], value_set=doc_ids)
    if (unknown := pc.index(known, False).as_py()) >= 0:
        source, row = place_of(parts, unknown)
        count = len(known) - pc.sum(known).as_py()
        found = f"document {shorten(documents['doc_id'][unknown].as_py())} ({count} are not passages)"
        raise input_error(source, found, "documents of this collection", "name the file for this collection", row)
    rows = positions(doc_ids, documents["doc_id"].combine_chunks())
    rows[rows < 0] = len(documents)
    batches = [*documents.to_batches(), to_batch([Weighted("", [], [])])]
    for start in range(0, len(rows), tables.ROW_GROUP):
        taken = take(batches, rows[start : start + tables.ROW_GROUP])
        yield taken.set_column(0, documents.schema.field(0), doc_ids.slice(start, len(taken)))


def take(batches: Sequence[pa.RecordBatch], rows: Integers) -> pa.Table:
    """Take rows from consecutive batches; Arrow would first concatenate all of them in memory."""
    first = offsets_of([*map(len, batches)])
    numbers = np.searchsorted(first, rows, side="right") - 1
    order = np.argsort(numbers, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1)
    taken = [batches[numbers[part[0]]].take(rows[part] - first[numbers[part[0]]]) for part in parts]
    return pa.Table.from_batches(taken).combine_chunks().take(np.argsort(order))


@options_class
class ImportOptions:
    """Import published term weights for this collection, such as those of DeepCT's authors.

    These are documents with the id of a passage and its words, each repeated according to its weight. A passage without
    a document has no terms.

    Reads:  JSON lines of `id` and `contents` (.jsonl, .jsonl.gz, or a .zip of such files), passages.parquet
    Writes: doc_id, terms and their weights, as parquet, in the order of the passages
    """

    documents: str = required("FILE", "weighted documents, .jsonl, .jsonl.gz, or a .zip of such files")
    passages: str = required("PARQUET", "the collection")
    output: str = required("PARQUET")


def import_documents(options: ImportOptions) -> None:
    """Write the documents in the order of the passages; until then, they are kept on disk."""
    with temporary_folder(options.output) as folder:
        documents, parts = keep(options.documents, folder / "documents.arrow")
        doc_ids = tables.read_column(options.passages, tables.PASSAGES, "doc_id")
        with tables.open_writer(options.output, tables.TERM_WEIGHTS) as writer:
            for table in in_order(documents, doc_ids, parts):
                writer.write_table(table)
        log.info("%d weighted documents for %d passages", len(documents), len(doc_ids))


def keep(source: str, path: Path) -> tuple[pa.Table, Parts]:
    """Write the documents to a file and memory-map it; also return the files that they come from."""
    counts: Counter[str] = Counter()
    with tables.arrow_writer(path, tables.TERM_WEIGHTS) as file:
        for name, batch in track(iter_documents(source), None, "documents", size=lambda item: len(item[1])):
            file.write_batch(batch)
            counts[name] += len(batch)
    documents = tables.open_arrow(path, "table of documents", "run the stage again")
    if not len(documents):
        raise input_error(source, "no document", "JSON lines of id and contents", "name another file")
    return documents, [(name, range(1, count + 1)) for name, count in counts.items()]


COMMANDS: Commands = {
    "predict": (WeighOptions, predict_weights),
    "import": (ImportOptions, import_documents),
}
main = main_of_commands(COMMANDS)

if __name__ == "__main__":
    sys.exit(main())

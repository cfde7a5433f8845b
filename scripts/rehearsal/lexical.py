"""The steps of term-based rankers: the passages, the passages with predicted queries, and weighted terms.

Files that no later step needs are removed, as those of the full size would fill a disk.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from scripts.rehearsal import common
from scripts.rehearsal.common import Step
from scripts.rehearsal.drawn import write_queries
from scripts.rehearsal.words import QUERIES, QUERY_WORDS, write_documents, write_predictions


def lexical_steps(folder: Path, passages: int, threads: int) -> Iterator[Step]:
    """Index and search the passages as they are, with predicted queries, and with weighted terms."""
    yield _index("", folder, passages, threads)
    yield _search("dev.small", folder, passages, threads)
    yield _search("train", folder, passages, threads)
    table, predictions, expansions = (folder / name for name in ("passages.parquet", "queries.zip", "queries.parquet"))
    note, write = (
        f"{QUERIES} random queries of {QUERY_WORDS} words each",
        partial(write_predictions, predictions, table),
    )
    files = {"predictions": predictions, "queries": QUERIES, "passages": table, "output": expansions}
    yield Step("import_expansions", passages, "passages", note, write, **files)
    yield _index("expanded", folder, passages, threads, note, predictions, expansions=expansions)
    yield _search("dev.small", folder, passages, threads, "expanded", expansions)
    documents, weights = folder / "documents.zip", folder / "term_weights.parquet"
    note, write = "random weights of all words", partial(write_documents, documents, table)
    files = {"documents": documents, "passages": table, "output": weights}
    yield Step("import_term_weights", passages, "passages", note, write, **files)
    yield _index("weighted", folder, passages, threads, note, documents, term_weights=weights)
    yield _search("dev.small", folder, passages, threads, "weighted", weights)


def _index(
    kind: str, folder: Path, passages: int, threads: int, note: str = "", done: Path | None = None, /, **changes: Path
) -> Step:
    """Index the passages, changed by a file; `done` is removed first."""
    heap = {"threads": threads, "memory_mb": 2_000}
    files = {"passages": folder / "passages.parquet", **changes, "output": folder / f"{kind or 'plain'}.index"}
    prepare = partial(done.unlink, missing_ok=True) if done else None
    return Step(f"bm25_index {kind}".strip(), passages, "passages", note, prepare, **heap, **files)


def _search(split: str, folder: Path, passages: int, threads: int, kind: str = "", done: Path | None = None) -> Step:
    """Search one of the indexes; `done` is removed first."""
    of_train = (common.SEARCHED, common.TRAINING_DEPTH)
    of_dev = (common.CHANGED_QUERIES if kind else common.DEV_QUERIES, common.DEPTH)
    count, depth = of_dev if split == "dev.small" else of_train
    queries, output = folder / f"all.{count}.{split}.parquet", folder / f"bm25.{kind or 'plain'}.{split}.trec"

    def prepare() -> None:
        write_queries(queries, folder / f"queries.{split}.parquet", count)
        if done:
            done.unlink(missing_ok=True)

    options = {"k1": 0.82, "b": 0.68, "depth": depth, "tag": "bm25", "threads": threads, "memory_mb": 2_000}
    note = f"{count:,} queries at depth {depth} at every size"
    files = {"index": folder / f"{kind or 'plain'}.index", "queries": queries, "output": output}
    return Step(f"bm25 {kind or split}", passages, "passages", note, prepare, **options, **files)

"""Builds of graph indexes: HNSW (Malkov & Yashunin, 2018) with hnswlib, ONNG (Iwasaki & Miyazaki, 2018) with NGT.

`cort/retrieval/graph_search.py` describes the files.
"""

import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.shards import Shard, all_ids, all_vectors, count_rows, from_batch, open_shards
from cort.formats.tables import arrow_writer
from cort.retrieval.graph_search import (
    HNSW_SPACE,
    IDS,
    IDS_FILE,
    META_FILE,
    ROWS_CHECKED_AT_ONCE,
    Vectors,
    library,
    refuse_other_lengths,
)
from cort.retrieval.graphs import GRAPHS
from cort.runtime.checksums import checksum
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder, temporary_folder
from cort.runtime.program import program_of
from cort.runtime.progress import track

HNSW_SEED = 100
VECTORS_ADDED_AT_ONCE = 5_000
DISTANCE = "Normalized L2"
# Vectors linked at a time. NGT itself links 200 at a time: multiples of that give the same graph as all at once.
LINKED_AT_ONCE = 5_000
PROGRESS_FILE = "progress.json"

log = logging.getLogger(__name__)


def open_passages(paths: Sequence[str]) -> list[Shard]:
    """Open the vectors to build an index from.

    :raises InputError: if there are none, or one has another length than 1 or 0.
    """
    passages = open_shards(paths)
    if not count_rows(passages):
        raise input_error(passages[0].path, "no passage", "at least one", "encode the passages again")
    refuse_other_lengths(passages)
    return passages


def without_zeros(passages: Sequence[Shard]) -> list[Shard]:
    """Leave out vectors that are zero, as NGT does silently, which moves the rows of the others.

    :raises InputError: if there are no others.
    """
    left = []
    for shard in passages:
        batches = shard.table.to_batches(ROWS_CHECKED_AT_ONCE)
        kept = [(batch, from_batch(batch)[1].any(axis=1)) for batch in batches]
        # Filtering copies vectors.
        batches = [batch if mask.all() else batch.filter(pa.array(mask)) for batch, mask in kept]
        left.append(replace(shard, table=pa.Table.from_batches(batches, shard.table.schema)))
    if not count_rows(left):
        fix = "use exact retrieval, or another encoder"
        raise input_error(passages[0].path, "zero vectors alone", "vectors of length 1", fix)
    return left


def blocks_of(passages: Sequence[Shard], rows: int, start: int = 0) -> Iterator[Vectors]:
    """Yield the vectors from row `start` on in blocks of `rows` rows, across shards; the last may be smaller."""
    table = pa.concat_tables([shard.table for shard in passages])
    for at in range(start, len(table), rows):
        yield all_vectors([replace(passages[0], table=table.slice(at, rows))])


def complete_index(folder: Path, passages: Sequence[Shard], kind: str, how: Mapping[str, object]) -> None:
    """Write ids.arrow and meta.json beside the library's files.

    :param how: the settings of the index.
    """
    ids = pa.table([all_ids(passages)], ["id"]).cast(IDS)
    with arrow_writer(folder / IDS_FILE, IDS) as file:
        file.write_table(ids)
    sizes = {name: (folder / name).stat().st_size for name in (*GRAPHS[kind].files, IDS_FILE)}
    count, dimension = len(ids), passages[0].dimension
    meta = {"model": passages[0].model, "count": count, "dimension": dimension, **how, "bytes": sizes}
    write_artifact(folder / META_FILE, meta)
    log.info("%d vectors of %d dimensions, %d MB", count, dimension, sum(sizes.values()) // 1_000_000)


def build_hnsw(paths: Sequence[str], output: str, neighbours: int, ef_construction: int) -> None:
    """Build an HNSW index with hnswlib; it does not depend on how passages are divided into shards.

    :param neighbours: M, edges per passage.
    """
    hnswlib = library()
    passages = open_passages(paths)
    count = count_rows(passages)
    how = {"M": neighbours, "ef_construction": ef_construction}
    with atomic_folder(output) as folder:
        index = hnswlib.Index(space=HNSW_SPACE, dim=passages[0].dimension)
        index.init_index(max_elements=count, random_seed=HNSW_SEED, **how)
        added = 0
        for vectors in track(blocks_of(passages, VECTORS_ADDED_AT_ONCE), count, "vectors added", size=len):
            index.add_items(vectors, np.arange(added, added + len(vectors)), num_threads=1)
            added += len(vectors)
        (file,) = GRAPHS["hnsw"].files
        index.save_index(str(folder / file))
        complete_index(folder, passages, "hnsw", {**how, "space": HNSW_SPACE})


@dataclass(frozen=True)
class Progress:
    """A saved unfinished ANNG: its identity, the number of vectors linked, and the sizes of its files."""

    identity: str
    linked: int
    bytes: dict[str, int]


@dataclass(frozen=True)
class Checkpoint:
    """Folder of an unfinished ANNG, replaced as a whole after `every` seconds."""

    folder: Path
    identity: str
    every: float

    def restore(self, work: Path) -> int:
        """Copy the saved graph to `work` if it belongs to this build; return its number of vectors, or 0."""
        path = self.folder / PROGRESS_FILE
        try:
            saved = read_artifact(path, Progress)
            whole = all((self.folder / name).stat().st_size == size for name, size in saved.bytes.items())
        except FileNotFoundError:
            return 0
        except (InputError, OSError) as error:
            log.warning("%s cannot be read (%s): the graph is built from scratch", path, error)
            return 0
        if saved.identity != self.identity or not whole:
            log.info("%s holds a part of another graph: ignored", self.folder)
            return 0
        work.mkdir()
        for name in saved.bytes:
            shutil.copyfile(self.folder / name, work / name)
        log.info("resumes after %d vectors", saved.linked)
        return saved.linked

    def keep(self, work: Path, linked: int) -> None:
        """Replace the saved graph by the files that NGT has just written to `work` and does not read again."""
        with atomic_folder(self.folder, recorded=False) as folder:
            sizes = {}
            for path in sorted(work.iterdir()):
                sizes[path.name] = path.stat().st_size
                shutil.move(path, folder / path.name)
            write_artifact(folder / PROGRESS_FILE, Progress(self.identity, linked, sizes))


def _build_plain_graph(
    passages: Sequence[Shard], path: Path, edges: int, threads: int, checkpoint: Checkpoint | None
) -> None:
    import ngtpy

    linked = checkpoint.restore(path) if checkpoint else 0
    if not linked:
        # 0: a search follows all edges; the optimized graph has few anyway.
        limits = {"edge_size_for_creation": edges, "edge_size_for_search": 0}
        ngtpy.create(str(path), passages[0].dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(path), log_disabled=True)
    saved, blocks = time.monotonic(), blocks_of(passages, LINKED_AT_ONCE, linked)
    for vectors in track(blocks, count_rows(passages), "vectors linked", done=linked, size=len):
        index.batch_insert(vectors, num_threads=threads, build=False)
        index.build_index(num_threads=threads)
        linked += len(vectors)
        if checkpoint and time.monotonic() - saved >= checkpoint.every:
            index.save()
            checkpoint.keep(path, linked)
            saved = time.monotonic()
    index.save()
    index.close()


def _optimize(plain: Path, optimized: Path, outgoing: int, incoming: int) -> None:
    import ngtpy

    optimizer = ngtpy.Optimizer(num_of_outgoings=outgoing, num_of_incomings=incoming, log_disabled=True)
    optimizer.set_processing_modes(
        # NGT 2.8.0.post1 reads the number of edges to keep from uninitialised memory, so equal calls may remove
        # different edges.
        shortcut_reduction=False,
        search_parameter_optimization=False,
        prefetch_parameter_optimization=False,
        accuracy_table_generation=False,
    )
    log.info("optimizes the graph")
    optimizer.execute(str(plain), str(optimized))


def _identity(passages: Sequence[Shard], edges: int) -> str:
    """Hash all that determines the bytes of an ANNG; how the vectors are divided into shards also counts."""
    parts = {
        "vectors": [checksum(shard.path) for shard in passages],
        "edges": edges,
        "program": [program_of("cort.index onng"), version("ngt")],
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def build_onng(
    paths: Sequence[str],
    output: str,
    *,
    edges: int,
    outgoing: int,
    incoming: int,
    threads: int,
    checkpoints: str | None,
    every: float,
) -> None:
    """Build an ONNG with NGT; it depends on neither shards nor threads.

    :param checkpoints: folder for the unfinished graph, which is saved there `every` so many seconds.
    """
    passages = without_zeros(open_passages(paths))
    checkpoint = None
    if checkpoints:
        identity = _identity(passages, edges)
        checkpoint = Checkpoint(Path(checkpoints), identity, every)
    with atomic_folder(output) as folder, temporary_folder(output) as work:
        plain, optimized = work / "anng", work / "onng"
        _build_plain_graph(passages, plain, edges, threads, checkpoint)
        _optimize(plain, optimized, outgoing, incoming)
        for name in GRAPHS["onng"].files:
            os.replace(optimized / name, folder / name)
        how = {"edges": edges, "outgoing": outgoing, "incoming": incoming}
        complete_index(folder, passages, "onng", how | {"distance": DISTANCE})
    if checkpoint:
        shutil.rmtree(checkpoint.folder, ignore_errors=True)

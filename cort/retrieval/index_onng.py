"""An ONNG graph of vectors (Iwasaki & Miyazaki, 2018; CoRT paper, section 4.5.3), with NGT.

First an approximate nearest neighbor graph (ANNG) with `edges` edges per passage is built; from it the optimized
graph, with `outgoing` and up to `incoming` edges. NGT's tuning of search parameters is off: it takes minutes, and
searches here set their own epsilon. The distance is "Normalized L2", which orders unit vectors as the angle and the
inner product do. The meaning of epsilon depends on the distance, so meta.json records it. Passages whose vector is
zero have no such distance and are left out.

Nearly all of the time goes into the ANNG, and grows faster than the number of passages. With --checkpoints it is
saved there from time to time, and an interrupted build resumes from it, to the same bytes.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with NGT's files (grp, obj, prf, robj, tre), ids.arrow (id of each vector, in order) and meta.json
"""

import logging
import os
import shutil
from importlib.metadata import version
from pathlib import Path

from cort.config.models import Onng
from cort.retrieval.graph_build import (
    PROGRESS_FILE,
    GraphBuildOptions,
    blocks,
    building,
    complete,
    nodes_of,
    resume,
)
from cort.retrieval.indexes import IDS_FILE, INDEXES
from cort.retrieval.rankings import Rows
from cort.retrieval.vectors import PassageVectors

DISTANCE = "Normalized L2"

log = logging.getLogger(__name__)


class Options(Onng, GraphBuildOptions):
    """Options of this stage."""


def _build_anng(options: Options, vectors: PassageVectors, rows: Rows, folder: Path) -> None:
    import ngtpy

    saved, progress = resume(options, __name__, [options.edges, version("ngt")])
    if progress.added:
        shutil.copytree(saved, folder, ignore=shutil.ignore_patterns(PROGRESS_FILE))
    else:
        # 0: a search follows all edges; the optimized graph has few anyway.
        limits = {"edge_size_for_creation": options.edges, "edge_size_for_search": 0}
        ngtpy.create(str(folder), vectors.dimension, distance_type=DISTANCE, **limits)
    index = ngtpy.Index(str(folder), log_disabled=True)
    for block in blocks(options, vectors, rows, progress, folder, index.save):
        index.batch_insert(block, num_threads=options.threads)
    index.save()
    index.close()


def stage(options: Options) -> None:
    """Build the index; it depends on neither shards nor threads."""
    import ngtpy

    # NGT leaves out vectors that are zero in silence, which would move the rows of the others.
    vectors, rows = nodes_of(options.passages, zeros=False)
    with building(options) as (folder, work):
        plain, optimized = work / "anng", work / "onng"
        _build_anng(options, vectors, rows, plain)
        edges = {"outgoing": options.outgoing, "incoming": options.incoming}
        optimizer = ngtpy.Optimizer(**{f"num_of_{kind}s": number for kind, number in edges.items()}, log_disabled=True)
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
        for name in {*INDEXES["onng"].files} - {IDS_FILE}:
            os.replace(optimized / name, folder / name)
        complete(folder, "onng", vectors, rows, {"edges": options.edges, **edges, "distance": DISTANCE})

"""An HNSW graph of vectors (Malkov & Yashunin, 2018), with faiss.

Vectors are compared by inner product, of unit vectors. faiss links the vectors of a block without regard to the order
in which threads finish, so their number changes nothing. With --checkpoints, the graph is saved from time to time, and
an interrupted build resumes from it, to the same bytes.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with graph.hnsw, ids.arrow (id of each vector, in order) and meta.json
"""

from __future__ import annotations

from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

from cort.config.models import Hnsw
from cort.retrieval.graph_build import GraphBuildOptions, blocks, building, complete, nodes_of, resume
from cort.retrieval.indexes import INDEXES, load_faiss

FILE = INDEXES["hnsw"].files[0]


class Options(Hnsw, GraphBuildOptions):
    """Options of this stage."""


def open_unfinished(options: Options, dimension: int, saved: Path, added: int) -> Any:
    """Return a graph to which vectors can be added: an empty one, or that of `added` vectors in `saved`."""
    faiss = load_faiss()
    if added:
        index = faiss.read_index(str(saved / FILE))
        # The generator of layers is not stored; it draws one number for each vector.
        for _ in range(added):
            index.hnsw.rng.rand_float()
    else:
        index = faiss.IndexHNSWFlat(dimension, options.M, faiss.METRIC_INNER_PRODUCT)
        index.hnsw.efConstruction = options.ef_construction
    # Without it, copies of one vector leave each other few edges to other passages.
    index.keep_max_size_level0 = True
    return index


def stage(options: Options) -> None:
    """Build the index; it depends on neither shards nor threads."""
    faiss = load_faiss()
    faiss.omp_set_num_threads(options.threads)
    vectors, rows = nodes_of(options.passages, zeros=True)
    how = {"M": options.M, "ef_construction": options.ef_construction}
    with building(options) as (folder, work):
        saved, progress = resume(options, __name__, [how, version("faiss-cpu")])
        index = open_unfinished(options, vectors.dimension, saved, progress.added)
        save = partial(faiss.write_index, index, str(work / FILE))
        for block in blocks(options, vectors, rows, progress, work, save):
            index.add(block)
        faiss.write_index(index, str(folder / FILE))
        complete(folder, "hnsw", vectors, rows, how)

"""An HNSW graph of vectors (Malkov & Yashunin, 2018), with hnswlib.

The distance is 1 - inner product, of unit vectors. One thread inserts the passages in order and draws their layers
with a fixed seed; with more threads, layers and edges would depend on scheduling.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with graph.hnsw, ids.arrow (id of each vector, in order) and meta.json
"""

from cort.config.models import Hnsw
from cort.retrieval.graph_build import blocks, complete, nodes_of
from cort.retrieval.graph_search import HNSW_SPACE, library
from cort.retrieval.indexes import INDEXES
from cort.runtime.files import atomic_folder
from cort.runtime.sections import ArrowFile, FolderPath, Several

HNSW_SEED = 100


class Options(Hnsw):
    """Options of this stage."""

    passages: Several[ArrowFile]
    """All embedding shards."""
    output: FolderPath


def stage(options: Options) -> None:
    """Build the index; it does not depend on how passages are divided into shards."""
    hnswlib = library()
    vectors, rows = nodes_of(options.passages, zeros=True)
    how = {"M": options.M, "ef_construction": options.ef_construction}
    with atomic_folder(options.output) as folder:
        index = hnswlib.Index(space=HNSW_SPACE, dim=vectors.dimension)
        index.init_index(max_elements=len(rows), random_seed=HNSW_SEED, **how)
        for block in blocks(vectors, rows):
            index.add_items(block, num_threads=1)
        index.save_index(str(folder / INDEXES["hnsw"].files[0]))
        complete(folder, "hnsw", vectors, rows, {**how, "space": HNSW_SPACE})

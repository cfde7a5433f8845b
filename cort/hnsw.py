"""Build an HNSW graph index of the passages (Malkov & Yashunin 2018) with hnswlib: the fast approximate kind.

`M` is the number of edges a passage gets on each layer, twice as many on the lowest; `ef_construction` is
the width of the search for them. Distances are 1 - inner product, over unit vectors.

Equal inputs give equal bytes: the layers are drawn with a fixed seed, in the order of the passages, by one thread. With
more threads both the draws and the edges would depend on which of them is first, so there is no such option.

Reads:  embedding shards of the passages, unit vectors
Writes: a folder with graph.hnsw, ids.arrow (id of each vector, in order) and meta.json
Usage:  python -m cort.hnsw --passages 1-of-2.arrow 2-of-2.arrow --M 16 --ef-construction 200 --output hnsw
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cort.formats.embeddings import Shard, open_shards
from cort.retrieval.graph import complete_index, count_vectors, unit_blocks
from cort.retrieval.hnsw import GRAPH_FILE, SPACE, library
from cort.retrieval.options import PassageVectorOptions, check_positive
from cort.system import cli
from cort.system.errors import input_error
from cort.system.files import atomic_folder
from cort.system.options import optional, required
from cort.system.progress import track

SEED = 100
ADDED_AT_ONCE = 5_000
# With one, hnswlib would divide by log(1) to draw layers.
CONNECTIONS = range(2, 1_001)


@dataclass(frozen=True, kw_only=True)
class Options(PassageVectorOptions):
    """Options of this stage."""

    M: int = optional(16, "edges per passage and layer", "M")
    ef_construction: int = optional(200, "width of the search for edges", "N")
    output: str = required("FOLDER")


def build(passages: Sequence[Shard], folder: Path, M: int, ef_construction: int) -> None:
    """Build the index of all passages in the empty `folder`. The result does not depend on the shards.

    :raises InputError: without passages or hnswlib, or for vectors not of length 1.
    """
    count, dimension = count_vectors(passages), passages[0].dimension
    index = library().Index(space=SPACE, dim=dimension)
    index.init_index(max_elements=count, M=M, ef_construction=ef_construction, random_seed=SEED)
    added = 0
    for vectors in track(unit_blocks(passages, ADDED_AT_ONCE), count, "vectors added", size=len):
        index.add_items(vectors, np.arange(added, added + len(vectors)), num_threads=1)
        added += len(vectors)
    index.save_index(str(folder / GRAPH_FILE))
    complete_index(folder, passages, "hnsw", {"M": M, "ef_construction": ef_construction, "space": SPACE})


def stage(options: Options) -> None:
    """Open the shards, build, put the folder in place."""
    if options.M not in CONNECTIONS:
        expected = f"{CONNECTIONS[0]} to {CONNECTIONS[-1]}"
        raise input_error("--M", str(options.M), expected, "give such a number")
    check_positive(options, "ef_construction")
    library()
    passages = open_shards(options.passages)
    with atomic_folder(options.output) as folder:
        build(passages, folder, options.M, options.ef_construction)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

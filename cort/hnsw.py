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
from dataclasses import dataclass

import numpy as np

from cort.retrieval.graph import HNSW_SPACE, blocks_of, complete_index, library, open_passages
from cort.retrieval.graphs import GRAPHS
from cort.retrieval.options import check_positive
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
class Options:
    """Options of this stage."""

    passages: tuple[str, ...] = required("ARROW", "embedding shards, all of them")
    M: int = optional(16, "edges per passage and layer", "M")
    ef_construction: int = optional(200, "width of the search for edges", "N")
    output: str = required("FOLDER")


def stage(options: Options) -> None:
    """Open the shards, build, put the folder in place. The result does not depend on the shards."""
    if options.M not in CONNECTIONS:
        expected = f"{CONNECTIONS[0]} to {CONNECTIONS[-1]}"
        raise input_error("--M", str(options.M), expected, "give such a number")
    check_positive(options, "ef_construction")
    hnswlib = library()
    passages = open_passages(options.passages)
    count = sum(shard.table.num_rows for shard in passages)
    how = {"M": options.M, "ef_construction": options.ef_construction}
    with atomic_folder(options.output) as folder:
        index = hnswlib.Index(space=HNSW_SPACE, dim=passages[0].dimension)
        index.init_index(max_elements=count, random_seed=SEED, **how)
        added = 0
        for vectors in track(blocks_of(passages, ADDED_AT_ONCE), count, "vectors added", size=len):
            index.add_items(vectors, np.arange(added, added + len(vectors)), num_threads=1)
            added += len(vectors)
        (file,) = GRAPHS["hnsw"].files
        index.save_index(str(folder / file))
        complete_index(folder, passages, "hnsw", {**how, "space": HNSW_SPACE})


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

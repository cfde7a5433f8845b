"""IVF-PQ indexes of token vectors with faiss: where late interaction takes its candidates from (ColBERT, section 3.6).

k-means divides the vectors into lists; of each, its list is stored, and a byte for each part of what its list does not
say (Jégou et al. 2011, IVFADC). A search reads the `probes` lists nearest to each token of a query and takes the
`candidates` vectors nearest to it. The passages of all these are scored exactly, so that what is found has the scores
of exact search.

An index is a folder with faiss' own file and meta.json.
"""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from threadpoolctl import threadpool_limits

from cort.formats.artifacts import read_artifact
from cort.formats.token_embeddings import TokenShard
from cort.formats.vector_files import all_ids
from cort.retrieval.graph import FIX, META_FILE
from cort.retrieval.graphs import INSTALL_FAISS, TOKEN_INDEXES
from cort.retrieval.max_similarity import Extent, Rows, TokenIndex, Vectors
from cort.retrieval.token_scores import QueryVectors
from cort.system.errors import input_error

(FILE,) = TOKEN_INDEXES["ivfpq"].files
# Codewords of a byte; vectors that are drawn per list, and at least, so that these have as many as faiss looks at.
CODEWORDS, DRAWN_PER_LIST, DRAWN = 256, 64, 65_536
# Part of the result, as the last bits of a product depend on how many there are.
ADDED_AT_ONCE = 16_384
# Of each so many passages, the vectors are in the fingerprint.
SPACING = 1_000


@dataclass(frozen=True)
class Meta:
    """What an index was built of, and how; `vectors` is a fingerprint, `longest` and `greatest` are the extent."""

    model: str
    similarity: str
    dimension: int
    passages: int
    tokens: int
    vectors: str
    longest: float
    greatest: float
    lists: int
    bytes_per_vector: int
    sample: int
    seed: int
    bytes: dict[str, int]


def library() -> Any:
    """Import faiss, an extra of this project.

    :raises InputError: it is not there.
    """
    # Of the builds for other processors that it looks for.
    logging.getLogger("faiss.loader").setLevel(logging.WARNING)
    try:
        import faiss
    except ImportError as error:
        raise input_error("faiss", "no such package", "faiss, for indexes of the kind ivfpq", INSTALL_FAISS) from error
    return faiss


def default_lists(tokens: int) -> int:
    """Return the power of 2 from the square root of the tokens on: ColBERT's 32,768 for those of MS MARCO."""
    return 1 << max(math.ceil(math.log2(max(tokens, 1)) / 2), 0)


def default_sample(tokens: int, lists: int) -> int:
    """Vectors that lists and codes are made from."""
    return min(tokens, max(DRAWN_PER_LIST * lists, DRAWN))


def count_tokens(passages: Sequence[TokenShard]) -> int:
    """Count the vectors of all passages."""
    return sum(len(block.vectors) for shard in passages for block in shard.blocks())


def fingerprint_of(passages: Sequence[TokenShard]) -> str:
    """Hash ids, numbers of tokens, and the vectors of some passages, wherever shards and blocks end."""
    ids, rest = hashlib.blake2b(digest_size=16), [hashlib.blake2b(digest_size=16) for _ in range(2)]
    for chunk in all_ids(passages).chunks:
        ids.update("".join(f"{name}\n" for name in chunk.to_pylist()).encode())
    first = 0
    for block in (block for shard in passages for block in shard.blocks()):
        rest[0].update(np.diff(block.offsets).tobytes())
        for row in range(-first % SPACING, len(block), SPACING):
            rest[1].update(np.ascontiguousarray(block.of(row)).tobytes())
        first += len(block)
    return hashlib.blake2b(b"".join(one.digest() for one in (ids, *rest)), digest_size=8).hexdigest()


def draw(passages: Sequence[TokenShard], number: int, seed: int) -> Vectors:
    """Draw so many vectors, one from each of as many equal parts of all; shape (number, dimension)."""
    parts = np.arange(number) + np.random.default_rng(seed).random(number)
    tokens = count_tokens(passages)
    places = np.minimum((parts * (tokens / number)).astype(np.int64), tokens - 1)
    found, first = [], 0
    for block in (block for shard in passages for block in shard.blocks()):
        start, end = np.searchsorted(places, (first, first + len(block.vectors)))
        found.append(block.vectors[places[start:end] - first].astype(np.float32))
        first += len(block.vectors)
    return np.concatenate(found)


def chunks(passages: Sequence[TokenShard], size: int) -> Iterator[tuple[Vectors, Rows]]:
    """Yield all vectors and the row of the passage of each, `size` at a time, wherever shards and blocks end."""
    vectors: list[npt.NDArray[np.float16]] = []
    owners: list[Rows] = []
    first = held = 0
    for block in (block for shard in passages for block in shard.blocks()):
        rows = np.repeat(np.arange(first, first + len(block)), np.diff(block.offsets))
        first, at = first + len(block), 0
        while at < len(rows):
            end = min(at + size - held, len(rows))
            vectors.append(block.vectors[at:end])
            owners.append(rows[at:end])
            at, held = end, held + end - at
            if held == size:
                yield np.concatenate(vectors).astype(np.float32), np.concatenate(owners)
                vectors, owners, held = [], [], 0
    if held:
        yield np.concatenate(vectors).astype(np.float32), np.concatenate(owners)


def train(sample: Vectors, similarity: str, lists: int, bytes_per_vector: int, seed: int, threads: int) -> Any:
    """Make the lists and codewords of an index that has no vectors yet."""
    faiss = library()
    faiss.omp_set_num_threads(threads)
    dimension = sample.shape[1]
    # Of unit vectors, the nearest one and the one with the largest product are the same.
    metric = faiss.METRIC_INNER_PRODUCT if similarity == "dot" else faiss.METRIC_L2
    flat = faiss.IndexFlat(dimension, metric)
    index = faiss.IndexIVFPQ(flat, dimension, lists, bytes_per_vector, int(math.log2(CODEWORDS)), metric)
    for clustering in (index.cp, index.pq.cp):
        clustering.seed = seed % 2**31
        # Of fewer it would warn.
        clustering.min_points_per_centroid = 1
    index.train(sample)
    return index


@dataclass(frozen=True)
class IvfPq:
    """An index that is open for searching, and the passages whose vectors it was built of."""

    index: Any
    meta: Meta
    passages: TokenIndex

    def search(self, query: QueryVectors, probes: int, candidates: int, depth: int) -> tuple[Vectors, Rows]:
        """Rank the passages that the tokens of a query lead to, in one thread of faiss.

        :param candidates: nearest vectors of each token of the query.
        :returns: the first `depth` by (-score, doc_id): scores, and places for `ids` of the passages.
        """
        rows = self.passages.empty
        if len(query.weights):
            parameters = library().SearchParametersIVF(nprobe=min(probes, self.meta.lists))
            wanted = min(candidates, self.meta.tokens)
            _, found = self.index.search(query.vectors.astype(np.float32), wanted, params=parameters)
            rows = np.union1d(rows, found[found >= 0])
        extent = Extent(self.meta.longest, self.meta.greatest)
        return self.passages.best_of(query, rows, depth, extent)


@dataclass(frozen=True)
class IvfPqSearch:
    """An index and how a system searches it; used as a `TokenIndex` is. Results do not depend on `threads`."""

    index: IvfPq
    probes: int
    candidates: int
    threads: int = 1

    def ids(self, places: Rows) -> list[str]:
        """Document ids of places."""
        return self.index.passages.ids(places)

    def search(self, queries: Sequence[QueryVectors], depth: int) -> list[tuple[Vectors, Rows]]:
        """Rank passages for each query, the queries side by side."""

        def one(query: QueryVectors) -> tuple[Vectors, Rows]:
            return self.index.search(query, self.probes, self.candidates, depth)

        with one_thread_each(), ThreadPoolExecutor(self.threads, initializer=single_threaded) as pool:
            return list(pool.map(one, queries))


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Have each product computed by the thread that asks for it, if that is `single_threaded`."""
    threads = torch.get_num_threads()
    try:
        with threadpool_limits(1, user_api="blas"):
            yield
    finally:
        torch.set_num_threads(threads)


def single_threaded() -> None:
    """Have this thread search alone."""
    library().omp_set_num_threads(1)
    torch.set_num_threads(1)


def open_ivfpq(folder: str | Path, passages: Sequence[TokenShard], opened: TokenIndex) -> IvfPq:
    """Open an index of the vectors of some passages.

    :param opened: the same passages.
    :raises InputError: a file that is missing or not as it was written, an index of other vectors, faiss is not there.
    """
    faiss = library()
    folder = Path(folder)
    meta = read_artifact(folder / META_FILE, Meta)
    _refuse_others(folder, meta, passages)
    path = folder / FILE
    size = path.stat().st_size if path.exists() else None
    if size != meta.bytes.get(FILE):
        found = "no such file" if size is None else f"{size} bytes"
        raise input_error(path, found, f"{meta.bytes.get(FILE)} bytes", FIX)
    try:
        index = faiss.read_index(str(path))
    except (RuntimeError, MemoryError) as error:
        reason = str(error).splitlines()[0]
        raise input_error(path, f"an index that cannot be read ({reason})", "a whole one", FIX) from error
    shape = (meta.dimension, meta.tokens, meta.lists)
    if not isinstance(index, faiss.IndexIVFPQ) or (index.d, index.ntotal, index.nlist) != shape:
        expected = f"an IVF-PQ index of {meta.tokens} vectors of {meta.dimension} dimensions in {meta.lists} lists"
        raise input_error(path, "another index", expected, FIX)
    for number in range(index.nlist):
        # As numbers without a sign, those below 0 are large.
        rows = faiss.rev_swig_ptr(index.invlists.get_ids(number), index.get_list_size(number)).view(np.uint64)
        if rows.max(initial=0) >= meta.passages:
            raise input_error(path, f"the passage {rows.max()}", f"rows 0 to {meta.passages - 1}", FIX)
    return IvfPq(index, meta, opened)


def _refuse_others(folder: Path, meta: Meta, passages: Sequence[TokenShard]) -> None:
    """Refuse an index of other vectors than those of some passages.

    :raises InputError: names the first difference.
    """
    origin, path = passages[0].origin, folder / META_FILE
    facts = {
        "dimension": (meta.dimension, origin.dimension),
        "similarity": (meta.similarity, origin.similarity),
        "model": (meta.model, origin.model),
    }
    for name, (found, wanted) in facts.items():
        if found != wanted:
            raise input_error(path, f"an index of {name} {found}", f"{name} {wanted}, as of the token vectors", FIX)
    if meta.vectors != (wanted := fingerprint_of(passages)):
        found = f"an index of {meta.tokens} token vectors of {meta.passages} passages ({meta.vectors})"
        number = sum(shard.table.num_rows for shard in passages)
        expected = f"one of the {count_tokens(passages)} of {number} passages given ({wanted})"
        raise input_error(path, found, expected, FIX)

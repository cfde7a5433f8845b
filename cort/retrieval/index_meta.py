"""What an approximate index was built from, and how: meta.json beside the library's files.

An index is of the vectors that it was built from: of the same model, ids and numbers of tokens. It is never searched
for the passages of others.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from cort.formats.artifacts import read_artifact, write_artifact
from cort.retrieval.indexes import FIX, INDEXES, META_FILE
from cort.retrieval.vectors import PassageVectors
from cort.runtime.errors import input_error

# Passages that the fingerprint covers.
FINGERPRINTED = 10_000


@dataclass(frozen=True)
class IndexMeta:
    """What an index was built from, and how.

    :ivar kind: of the index, one of `INDEXES`.
    :ivar model: fingerprint of the encoder, or of the re-ranker.
    :ivar passages: number of those that the index was built for.
    :ivar vectors: number of those in the index.
    :ivar fingerprint: of the ids of the passages, and how many vectors each has.
    :ivar settings: of the build.
    :ivar bytes: sizes of the library's files.
    :ivar extent: length of the longest vector, and the largest absolute number in any, where a search needs them.
    """

    kind: str
    model: str
    similarity: str
    dimension: int
    passages: int
    vectors: int
    fingerprint: str
    settings: dict[str, int | str]
    bytes: dict[str, int]
    extent: tuple[float, float] | None = None


def write_meta(
    folder: Path,
    kind: str,
    vectors: PassageVectors,
    count: int,
    settings: Mapping[str, int | str],
    extent: tuple[float, float] | None = None,
) -> IndexMeta:
    """Describe the index in a folder, which has `count` of the vectors.

    :param settings: of the build.
    """
    origin = vectors.origin
    meta = IndexMeta(
        kind=kind,
        model=origin.model,
        similarity=origin.similarity,
        dimension=origin.dimension,
        passages=len(vectors.offsets) - 1,
        vectors=count,
        fingerprint=fingerprint_of(vectors),
        settings=dict(settings),
        bytes={name: (folder / name).stat().st_size for name in INDEXES[kind].files},
        extent=extent,
    )
    write_artifact(folder / META_FILE, meta)
    return meta


def read_meta(folder: Path, kind: str) -> IndexMeta:
    """Read the description of an index; refuse one of another kind."""
    meta = read_artifact(folder / META_FILE, IndexMeta)
    if meta.kind != kind:
        raise input_error(folder / META_FILE, f"an index of the kind {meta.kind}", kind, "name another kind or index")
    return meta


def refuse_others(folder: Path, meta: IndexMeta, vectors: PassageVectors) -> None:
    """Refuse an index of other vectors than these; the error names the first difference."""
    path, origin = folder / META_FILE, vectors.origin
    for name in ("dimension", "similarity", "model"):
        own, expected = getattr(meta, name), getattr(origin, name)
        if own != expected:
            raise input_error(path, f"an index of {name} {own}", f"{name} {expected}, as of the vectors given", FIX)
    if meta.fingerprint != (fingerprint := fingerprint_of(vectors)):
        found = f"an index of {meta.vectors} vectors of {meta.passages} passages ({meta.fingerprint})"
        expected = f"one of the {len(vectors)} of {len(vectors.offsets) - 1} passages given ({fingerprint})"
        raise input_error(path, found, expected, FIX)


def fingerprint_of(vectors: PassageVectors) -> str:
    """Hash the ids of a sample of passages and the rows of their vectors; shards and blocks do not matter."""
    ids = vectors.ids
    rows = np.linspace(0, len(ids) - 1, FINGERPRINTED).astype(np.int64)
    drawn = repr((ids.take(pa.array(rows)).to_pylist(), vectors.offsets[rows + 1].tolist()))
    return hashlib.blake2b(drawn.encode(), digest_size=8).hexdigest()

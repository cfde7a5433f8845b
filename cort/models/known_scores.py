"""Scores of pairs that earlier jobs computed: a pair of the same texts and the same model is not scored again.

A pair is known by digests of its token ids, so that ids of queries and passages do not matter, and a changed text has
no score. A file holds the scores of the jobs with one output, as Arrow IPC with the identity of their computation;
files in its folder are read, too. Those that are damaged or of another computation are never used.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cort.formats.checkpoints import IDENTITY
from cort.formats.records import Integers
from cort.formats.shards import Tokens
from cort.formats.tables import arrow_writer, open_arrow
from cort.runtime.errors import InputError

log = logging.getLogger(__name__)

Scores = npt.NDArray[np.float32]
# Bytes of the digest of a text.
BYTES = 16
SCHEMA = pa.schema({"pair": pa.binary(2 * BYTES), "score": "float32"})


def keys_of(queries: Tokens, passages: Tokens, rows: tuple[Integers, Integers]) -> pa.Array:
    """Identify pairs by their token ids; `rows` are those of their queries and passages."""
    digests = np.hstack([_digests(tokens, some) for tokens, some in zip((queries, passages), rows, strict=True)])
    return pa.FixedSizeBinaryArray.from_buffers(SCHEMA.field(0).type, len(digests), [None, pa.py_buffer(digests)])


def _digests(tokens: Tokens, rows: Integers) -> npt.NDArray[np.uint8]:
    distinct, of = np.unique(rows, return_inverse=True)
    texts = (hashlib.blake2b(tokens[row].tobytes(), digest_size=BYTES).digest() for row in distinct.tolist())
    digests: npt.NDArray[np.uint8] = np.frombuffer(b"".join(texts), np.uint8).reshape(-1, BYTES)[of]
    return digests


class KnownScores:
    """The scores that jobs have left in a folder.

    :param path: where the scores of this job are kept for later ones; None to keep none.
    :param keys: of the pairs of this job.
    """

    def __init__(self, path: str | None, keys: pa.Array) -> None:
        self._path, self._keys, self._schema = Path(path) if path else None, keys, SCHEMA

    def find(self, identify: Callable[[], str]) -> Scores:
        """Return the scores of all pairs, NaN for those that have none.

        :param identify: describes all that determines scores of texts.
        """
        scores = np.full(len(self._keys), np.nan, np.float32)
        if self._path is None:
            return scores
        self._schema = SCHEMA.with_metadata({IDENTITY: identify()})
        for path in sorted(self._path.parent.glob("*.arrow")):
            for table in self._read(path):
                places = pc.index_in(self._keys, value_set=table["pair"])
                found = pc.take(table["score"], places).to_numpy()
                scores = np.where(np.isnan(scores), found, scores)
        log.info("%d of %d pairs have scores of earlier jobs", np.isfinite(scores).sum(), len(scores))
        return scores

    def keep(self, scores: Scores) -> None:
        """Add the scores of all pairs to those that the file has, after `find`."""
        if self._path is None:
            return
        others = [
            table.filter(pc.invert(pc.is_in(table["pair"], value_set=self._keys))) for table in self._read(self._path)
        ]
        with arrow_writer(self._path, self._schema) as file:
            for table in (*others, pa.table([self._keys, scores], schema=self._schema)):
                file.write_table(table)

    def _read(self, path: Path) -> Iterator[pa.Table]:
        """Yield the scores in a file, if there is one of this computation."""
        try:
            table = open_arrow(path, "file of scores", "it is made again")
        except FileNotFoundError:
            return
        except InputError as error:
            log.warning("%s", error)
            return
        if table.schema.equals(self._schema, check_metadata=True):
            yield table

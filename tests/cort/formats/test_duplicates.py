import numpy as np
import pyarrow as pa
import pytest

from cort.formats.duplicates import kept_rows
from cort.runtime.errors import InputError
from tests.support.errors import line_of


def keys_of(seed):
    return [str(value * value * (seed + 7) % (5 + seed % 40)) for value in range(1 + seed % 12)]


def test_the_first_duplicate_is_found_as_by_brute_force():
    for keys in ([], ["01", "1"], ["1", "2", "2"], *map(keys_of, range(50))):
        chunks = pa.chunked_array([keys[: len(keys) // 2], [], keys[len(keys) // 2 :]], pa.string())
        repeats = [(position, keys.index(key)) for position, key in enumerate(keys) if keys.index(key) < position]
        parts = [("f.tsv", range(2, len(keys) + 2))]
        if not repeats:
            kept_rows(parts, chunks, "doc_id")
            continue
        again, first = repeats[0]
        assert line_of(kept_rows, parts, chunks, "doc_id") == (
            f"f.tsv: row {again + 2}: found doc_id {keys[again]!r} again (it is already in row {first + 2}), "
            "expected each doc_id once; remove one of the two rows"
        )


def test_identical_rows_are_dropped_and_others_with_the_same_key_refused():
    for keys in map(keys_of, range(50)):
        chunks, parts = pa.chunked_array([keys], pa.string()), [("f.tsv", range(1, len(keys) + 1))]
        kept = kept_rows(parts, chunks, "doc_id", lambda keys=keys: np.array([len(key) for key in keys]), "text")
        first = [position for position, key in enumerate(keys) if key not in keys[:position]]
        assert (list(range(len(keys))) if kept is None else kept.tolist()) == first
        if len(first) < len(keys):
            with pytest.raises(InputError, match=r"doc_id '.*' again, with another text"):
                kept_rows(parts, chunks, "doc_id", lambda keys=keys: np.arange(len(keys)), "text")

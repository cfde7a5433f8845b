"""Ids as numbers, made without a Python object per id."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow

Text: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.int64]
Words: TypeAlias = npt.NDArray[np.uint64]

WORD = 8
PIECE = 65_536
# The first n bytes of a word as it lies in memory.
FIRST_BYTES = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)], dtype="<u8")
# Odd and without a pattern: products spread over all 64 bits.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def alphabetic_codes(ids: pa.Array) -> npt.NDArray[np.int64]:
    """Give equal ids equal numbers that sort as the strings, in the order of their bytes, do."""
    encoded = pc.dictionary_encode(ids)
    place = np.empty(len(encoded.dictionary), dtype=np.int64)
    place[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(len(place))
    codes: npt.NDArray[np.int64] = place[encoded.indices.to_numpy()]
    return codes


def positions(ids: pa.Array | pa.ChunkedArray, known: pa.Array) -> npt.NDArray[np.int64]:
    """Position of each id in `known`, -1 where it is not there."""
    return np.asarray(pc.fill_null(pc.index_in(ids, value_set=known), -1), np.int64)


def unknown_ids(ids: pa.Array, known: pa.ChunkedArray) -> pa.Array:
    """Keep the ids that are not in `known`."""
    return ids.filter(pc.invert(pc.is_in(ids, value_set=known.combine_chunks())))


def string_bytes(strings: pa.Array) -> tuple[Text, npt.NDArray[np.int32]]:
    """Return the bytes of strings, one after the other, and where each begins and the last one ends."""
    _, places, data = strings.buffers()
    offsets = np.frombuffer(places, np.int32, count=strings.offset + len(strings) + 1)[strings.offset :]
    return np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def sort_keys(ids: pa.Array) -> npt.NDArray[np.int64] | Words:
    """Give numbers that sort and compare as the strings, in the order of their bytes, do; fast where ids are short."""
    if int(pc.max(pc.binary_length(ids)).as_py() or 0) > WORD or pc.any(pc.match_substring(ids, "\x00")).as_py():
        return alphabetic_codes(ids)
    # Without a zero byte in it, an id filled up with zero bytes is like no other.
    return _by_piece(_words, ids).byteswap()


def is_plain(ids: pa.Array) -> bool:
    """Whether no id is empty, and all are of printable ASCII characters but blanks."""
    text, _, lengths = _places(ids)
    return not len(ids) or bool(lengths.min() > 0 and text.min() > ord(" ") and text.max() <= ord("~"))


def hashes(ids: pa.Array) -> Words:
    """Give equal ids equal numbers; different ids have different ones, but for rare accidents."""
    return _by_piece(_hashes, ids)


def _by_piece(numbers: Callable[[Text, Places, Places], Words], ids: pa.Array) -> Words:
    """Take few ids at a time: that is several times as fast, and takes no memory."""
    found = np.empty(len(ids), dtype=np.uint64)
    for start in range(0, len(ids), PIECE):
        found[start : start + PIECE] = numbers(*_places(ids.slice(start, PIECE)))
    return found


def _hashes(text: Text, starts: Places, lengths: Places) -> Words:
    found = lengths.astype(np.uint64)
    for skipped in range(0, int(lengths.max()), WORD):
        found ^= _words(text, starts + skipped, np.clip(lengths - skipped, 0, WORD))
        found *= MULTIPLIER
        found ^= found >> np.uint64(32)
    return found


def _words(text: Text, starts: Places, lengths: Places) -> Words:
    """`lengths` bytes (at most 8) from `starts` on, as little-endian numbers."""
    padded = np.concatenate([text, np.zeros(2 * WORD, dtype=np.uint8)])
    words = np.ndarray((len(text) + WORD,), dtype="<u8", buffer=padded.data, strides=(1,))
    # What begins beyond the end has no bytes.
    found: Words = words[np.minimum(starts, len(text))]
    found &= FIRST_BYTES[lengths]
    return found


def _places(ids: pa.Array) -> tuple[Text, Places, Places]:
    """Return the bytes of ids, one after the other; where each begins, and its length."""
    text, offsets = string_bytes(ids)
    return text, offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)


def are_ids(column: pa.ChunkedArray) -> bool:
    """Whether no id is empty or has white space or invisible characters in it."""
    coded = pa.types.is_dictionary(column.type)
    parts = [chunk.dictionary if coded else chunk for chunk in column.chunks]
    odd = (pc.match_substring_regex(part, r"[\pZ\p{Cc}\p{Cf}]|^$") for part in parts if not is_plain(part))
    return not any(pc.any(found).as_py() for found in odd)

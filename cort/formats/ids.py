"""Numbers for ids, computed without a Python object per id."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow
from cort.formats.records import Integers

Text = npt.NDArray[np.uint8]
Words = npt.NDArray[np.uint64]

WORD = 8
PIECE = 65_536
LARGEST_OFFSET = 2**31 - 1
# Masks for the first n bytes of a word in memory.
FIRST_BYTES = np.array([(1 << 8 * length) - 1 for length in range(WORD + 1)], dtype="<u8")
# Odd and without a pattern, so that products spread over all 64 bits.
MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)


def positions(ids: pa.Array | pa.ChunkedArray, known: pa.Array) -> Integers:
    """Return the position of each id in `known`, or -1 if it is absent."""
    if pa.types.is_large_string(known.type):
        ids = ids.cast(known.type)
    return np.asarray(pc.fill_null(pc.index_in(ids, value_set=known.cast(ids.type)), -1), np.int64)


def is_in(ids: pa.Array | pa.ChunkedArray, known: pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Tell for each id whether it is among `known`, which may be those of a collection, more than 2 GB."""
    return pc.is_in(ids.cast("large_string"), value_set=known.cast("large_string"))


def unknown_ids(ids: pa.Array, known: pa.ChunkedArray) -> pa.Array:
    """Keep the ids that are not in `known`."""
    return ids.filter(pc.invert(is_in(ids, known)))


def joined(ids: pa.ChunkedArray) -> pa.Array:
    """Join chunks; as large strings if 32-bit offsets do not reach their end."""
    return (ids if ids.nbytes <= LARGEST_OFFSET else ids.cast("large_string")).combine_chunks()


def concatenated(parts: Sequence[pa.Array]) -> pa.Array:
    """Concatenate ids like `joined`, if some are large strings, too."""
    kind = "large_string" if any(pa.types.is_large_string(ids.type) for ids in parts) else "string"
    return joined(pa.chunked_array([ids.cast(kind) for ids in parts], kind))


def string_bytes(strings: pa.Array) -> tuple[Text, npt.NDArray[np.signedinteger]]:
    """Return the concatenated bytes of strings or large strings, and the offset of each start and of the last end."""
    _, places, data = strings.buffers()
    size = np.int64 if pa.types.is_large_string(strings.type) else np.int32
    offsets = np.frombuffer(places, size, count=strings.offset + len(strings) + 1)[strings.offset :]
    return np.frombuffer(data or b"", np.uint8)[offsets[0] : offsets[-1]], offsets - offsets[0]


def sort_keys(ids: pa.Array) -> Words:
    """Give ids numbers that sort and compare like their bytes; fast if all ids are short."""
    if int(pc.max(pc.binary_length(ids)).as_py() or 0) > WORD or pc.any(pc.match_substring(ids, "\x00")).as_py():
        return np.asarray(pc.rank(ids, tiebreaker="dense"))

    # Ids without zero bytes remain distinct when padded with zeros.
    return _by_piece(lambda text, starts, lengths: _masked(_all_words(text), starts, lengths), ids).byteswap()


def is_plain(ids: pa.Array) -> bool:
    """Whether all ids consist of one or more printable ASCII characters other than the space."""
    text, _, lengths = _places(ids)
    return not len(ids) or bool(lengths.min() > 0 and text.min() > ord(" ") and text.max() <= ord("~"))


def hashes(ids: pa.Array) -> Words:
    """Give equal ids equal numbers; different ids share a number only in rare collisions."""
    return _by_piece(_hashes, ids)


def has_repeated(ids: pa.ChunkedArray) -> bool:
    """Whether an id occurs twice; several times as fast as counting the different ids."""
    return may_repeat(ids.chunks, len(ids)) and pc.count_distinct(ids).as_py() < len(ids)


def may_repeat(parts: Iterable[pa.Array], count: int) -> bool:
    """Whether two of `count` ids have the same number, as equal ids do; needs 8 bytes per id."""
    numbers, end = np.empty(count, np.uint64), 0
    for ids in parts:
        start, end = end, end + len(ids)
        numbers[start:end] = hashes(ids)
    numbers.sort()
    return bool((numbers[1:] == numbers[:-1]).any())


def _by_piece(numbers: Callable[[Text, Integers, Integers], Words], ids: pa.Array) -> Words:
    """Process few ids at a time, which is several times faster and needs little memory."""
    pieces = [numbers(*_places(ids.slice(start, PIECE))) for start in range(0, len(ids), PIECE)]
    return np.concatenate([np.empty(0, np.uint64), *pieces])


def _hashes(text: Text, starts: Integers, lengths: Integers) -> Words:
    """Hash each text by itself: those with more bytes come first, so that each word concerns a part of all rows."""
    order = np.argsort(-lengths, kind="stable") if lengths.max() > WORD else slice(None)
    starts, lengths, words = starts[order], lengths[order], _all_words(text)
    numbers = lengths.astype(np.uint64)
    for skipped in range(0, int(lengths.max()), WORD):
        rows = numbers[: np.searchsorted(-lengths, -skipped) if skipped else None]
        rows ^= _masked(words, starts[: len(rows)] + skipped, np.minimum(lengths[: len(rows)] - skipped, WORD))
        rows *= MULTIPLIER
        rows ^= rows >> np.uint64(32)
    placed = np.empty_like(numbers)
    placed[order] = numbers
    return placed


def _all_words(text: Text) -> Words:
    """View the 8 bytes at each place as a number; beyond the end are zeros."""
    padded = np.concatenate([text, np.zeros(2 * WORD, dtype=np.uint8)])
    return np.ndarray((len(text) + WORD,), dtype="<u8", buffer=padded.data, strides=(1,))


def _masked(words: Words, starts: Integers, lengths: Integers) -> Words:
    """Read `lengths` bytes (at most 8) at `starts` as little-endian numbers."""
    numbers: Words = words[starts]
    numbers &= FIRST_BYTES[lengths]
    return numbers


def _places(ids: pa.Array) -> tuple[Text, Integers, Integers]:
    """Return the concatenated bytes of ids, and the start and length of each."""
    text, offsets = string_bytes(ids)
    return text, offsets[:-1].astype(np.int64), np.diff(offsets).astype(np.int64)


def are_ids(column: pa.ChunkedArray) -> bool:
    """Whether no id is empty or has whitespace or invisible characters."""
    coded = pa.types.is_dictionary(column.type)
    parts = [chunk.dictionary if coded else chunk for chunk in column.chunks]
    odd = (pc.match_substring_regex(part, r"[\pZ\p{Cc}\p{Cf}]|^$") for part in parts if not is_plain(part))
    return not any(pc.any(matches).as_py() for matches in odd)

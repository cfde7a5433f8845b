import itertools
import random

import numpy as np
import pyarrow as pa
import pytest

from cort.formats.ids import has_repeated, hashes, is_plain, sort_keys

SHORT = ["", "a", "b", "ab", "abcdefgh", "abcdefg", "ü", "z", "10", "9", "0", "00", "\x7f", "aaaaaaaa"]
LONG = [*SHORT, "abcdefghi", "abcdefgh" * 3, "abcdefgh" * 3 + "a", "é" * 9]
ZEROS = ["a", "a\x00", "a\x00\x00", "\x00"]


def random_ids(seed, longest):
    generator = random.Random(seed)  # noqa: S311
    return ["".join(generator.choices("0123456789ab", k=generator.randint(0, longest))) for _ in range(500)]


@pytest.mark.parametrize("ids", [SHORT, LONG, ZEROS, [], random_ids(2, 20)])
def test_numbers_sort_and_compare_as_the_bytes_of_the_ids_do(ids):
    keys = sort_keys(pa.array(ids, pa.string())).tolist()
    for (a, key_a), (b, key_b) in itertools.product(zip(ids, keys, strict=True), repeat=2):
        assert (a.encode() < b.encode()) == (key_a < key_b)
        assert (a == b) == (key_a == key_b)


@pytest.mark.parametrize("ids", [LONG, ZEROS, random_ids(3, 8), random_ids(4, 30)])
def test_hashes_tell_ids_apart_and_only_those(ids):
    found = hashes(pa.array(ids, pa.string())).tolist()
    assert len(set(found)) == len(set(ids))
    assert len(dict(zip(ids, found, strict=True))) == len(set(zip(ids, found, strict=True)))


@pytest.mark.parametrize("longest", [8, 30])
def test_a_part_of_a_column_has_the_numbers_of_its_own_ids(monkeypatch, longest):
    ids = random_ids(5, longest)
    whole, part = pa.array(ids, pa.string()), pa.array(ids, pa.string()).slice(101, 99)
    assert hashes(part).tolist() == hashes(whole)[101:200].tolist()
    if longest == 8:
        assert sort_keys(part).tolist() == sort_keys(whole)[101:200].tolist()
    expected = hashes(whole)
    monkeypatch.setattr("cort.formats.ids.PIECE", 7)
    assert np.array_equal(hashes(whole), expected)


@pytest.mark.parametrize("strange", ["", "a b", "ü", "\x7f"])
def test_plain_ids_are_printable_ascii_without_blanks(strange):
    assert is_plain(pa.array(["a", '"', "~", "!"], pa.string()))
    assert is_plain(pa.array([], pa.string()))
    assert not is_plain(pa.array(["a", strange, "b"], pa.string()))
    assert is_plain(pa.array([strange, "a", "b", strange], pa.string()).slice(1, 2))


@pytest.mark.parametrize("equal", [False, True])
@pytest.mark.parametrize("chunks", [[[]], [["a", "b"], ["c"]], [["a"], ["b", "a"]], [["a", ""], [], [""]]])
def test_an_id_is_repeated_in_any_chunk_even_if_numbers_collide(chunks, equal, monkeypatch):
    if equal:
        monkeypatch.setattr("cort.formats.ids.hashes", lambda ids: np.zeros(len(ids), np.uint64))
    ids = list(itertools.chain(*chunks))
    assert has_repeated(pa.chunked_array(chunks, "string")) == (len(set(ids)) < len(ids))

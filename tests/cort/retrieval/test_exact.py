import itertools

import numpy as np
import pytest
import torch

from cort.formats.shards import STORAGE, write_shard
from cort.retrieval import codes, exact, halves, topk
from cort.retrieval.rankings import rank
from cort.retrieval.vectors import open_vectors
from tests.support.vectors import names, random_unit, shards

pytestmark = pytest.mark.usefixtures("one_thread")


def brute_force(query_ids, queries, ids, vectors, depth):
    """All scores in double precision, rounded to single, by (-score, doc_id)."""
    result = {}
    for query_id, query in zip(query_ids, queries.astype(np.float64), strict=True):
        scores = (vectors.astype(np.float64) @ query).astype(np.float32) + np.float32(0)  # zero has no sign
        by = sorted(range(len(ids)), key=lambda i, scores=scores: (-scores[i], ids[i]))[:depth]
        result[query_id] = ([ids[i] for i in by], scores[by])
    return result


def first_passes():
    """First passes that this processor has."""
    return ("single", "halves", "codes") if codes.is_right() else ("single", "halves")


def check(folder, queries, passages, depths, *, ids=None, devices=("cpu",), threads=1, memory_mb=0, bounds=(), **kinds):
    """All first passes find what brute force does, at each depth."""
    query_ids, ids = names("q", len(queries)), ids or names("d", len(passages))
    q = open_vectors(shards(folder, "q", query_ids, queries, **kinds))
    p = open_vectors(shards(folder, "p", ids, passages, bounds, **kinds))
    expected = brute_force(query_ids, queries, ids, passages, max(depths))
    for first in first_passes():
        index = exact.ExactIndex(p, devices, threads, memory_mb, first=first)
        for depth in depths:
            found = list(rank(index, q.batches(), depth))
            assert [ranking.query_id for ranking in found] == query_ids
            for ranking in found:
                doc_ids, scores = expected[ranking.query_id]
                assert ranking.doc_ids == doc_ids[:depth]
                assert ranking.scores.tobytes() == scores[:depth].tobytes()


def scores_at_once(monkeypatch, scores):
    """Hold so many scores at once, in all first passes."""
    monkeypatch.setitem(topk.SCORES_AT_ONCE, "cpu", scores)
    monkeypatch.setattr(exact, "SINGLE_AT_ONCE", scores)
    monkeypatch.setattr(codes, "CODED_AT_ONCE", 7)
    monkeypatch.setattr(codes, "BLOCK", 90)


@pytest.fixture
def generator():
    return np.random.default_rng(11)


@pytest.mark.parametrize("dimension", [1, 7, 100])
def test_equals_brute_force(tmp_path, generator, dimension):
    ids = [str(number) for number in generator.permutation(300)]
    queries, passages = (random_unit(generator, count, dimension) for count in (20, 300))
    check(tmp_path, queries, passages, (10, 1000), ids=ids)


# Few and many scores, queries and passages of a thread at once; groups, and the last batch, may be cut short.
@pytest.mark.parametrize(
    ("scores", "group", "at_once", "held", "queries", "storage"),
    [
        (1, 32, 100, 1, 17, "fp32"),
        (50, 3, 1, 40, 1, "fp16"),
        (450, 1, 7, 64, 17, "fp16"),
        (1_000, 16, 512, 300, 1, "fp32"),
        (10_000, 3, 100, 1000, 3, "fp16"),
    ],
)
def test_equals_brute_force_whatever_is_held_at_once(
    tmp_path, generator, monkeypatch, scores, group, at_once, held, queries, storage
):
    scores_at_once(monkeypatch, scores)
    monkeypatch.setattr(topk, "GROUP", group)
    monkeypatch.setattr(topk, "FEWEST", scores)
    monkeypatch.setattr(exact, "QUERIES_AT_ONCE", at_once)
    monkeypatch.setattr(exact, "ROWS_OF_A_THREAD", held)
    kind = STORAGE[storage].to_pandas_dtype()
    asked, passages = (random_unit(generator, rows, 16).astype(kind) for rows in (queries, 300))
    for memory_mb in (0, 1):
        check(tmp_path, asked, passages, (1, 20, 400), batch=held % 71, memory_mb=memory_mb, storage=storage)


@pytest.mark.parametrize(("devices", "threads", "memory_mb"), [(1, 3, 0), (2, 1, 1), (9, 3, 1)])
def test_shards_devices_and_threads_change_no_byte(tmp_path, generator, devices, threads, memory_mb):
    ids = [str(number) for number in generator.permutation(300)]
    vectors = random_unit(generator, 9, 8), random_unit(generator, 300, 8)
    many = {"devices": ["cpu"] * devices, "threads": threads, "memory_mb": memory_mb}
    check(tmp_path, *vectors, (30,), ids=ids, bounds=(100, 101), batch=40, **many)


def test_files_that_say_how_long_their_vectors_are_are_not_measured(tmp_path, generator, monkeypatch):
    vectors, path, rows = random_unit(generator, 300, 8), tmp_path / "p.arrow", []
    write_shard(path, [(names("d", 300), vectors)], model="m", dimension=8, count=300, longest=1.002)
    measure = topk.vector_norms
    monkeypatch.setattr(topk, "vector_norms", lambda *given: rows.append(len(given[0])) or measure(*given))
    [(scores, found)] = exact.ExactIndex(open_vectors([path]), first="single").search(vectors[:1], 20)
    assert rows == []
    assert found[0] == 0
    assert scores == pytest.approx(np.sort(vectors @ vectors[0])[::-1][:20])


@pytest.mark.parametrize("scores", [90, 1 << 24])
def test_ties_are_broken_by_doc_id_also_at_the_cut(tmp_path, generator, monkeypatch, scores):
    scores_at_once(monkeypatch, scores)
    # Every vector occurs about 10 times, and a query's score of 0 about as often as any: whole numbers tie exactly.
    vectors = generator.integers(-1, 2, (400, 8)).astype(np.float32)[generator.integers(0, 40, 400)]
    queries = generator.integers(-1, 2, (30, 8)).astype(np.float32)
    queries[0] = 0
    check(tmp_path, queries, vectors, (1, 5, 37, 400), ids=[str(number) for number in generator.permutation(400)])


def test_nearly_equal_scores_are_told_apart(tmp_path, generator, monkeypatch):
    # All scores lie within the rounding error of a single-precision product: the first pass sees nothing but noise.
    scores_at_once(monkeypatch, 50)
    base = random_unit(generator, 1, 64)
    vectors = np.repeat(base, 500, axis=0) * (1 + generator.standard_normal((500, 64)) * 1e-7)
    check(tmp_path, base, vectors.astype(np.float32), (20,))


def test_a_misleading_sample_costs_a_second_pass(tmp_path, generator, monkeypatch):
    monkeypatch.setattr(topk, "FEWEST", 50)
    # What is sampled, each sixth passage, is as near as can be; of the others some are nearer than the rest.
    vectors, queries = random_unit(generator, 300, 8), random_unit(generator, 1, 8)
    vectors[::6] = queries
    p, q = (open_vectors(shards(tmp_path, *one)) for one in (("p", names("d", 300), vectors), ("q", ["q"], queries)))
    doc_ids, scores = brute_force(["q"], queries, names("d", 300), vectors, 120)["q"]
    for first in first_passes():
        looks = []

        def estimate(*given, looks=looks):
            looks.append(given[-1])
            return topk.estimate_threshold(*given)

        monkeypatch.setattr(exact, "estimate_threshold", estimate)
        [found] = rank(exact.ExactIndex(p, first=first), q.batches(), 120)
        assert found.doc_ids == doc_ids
        assert np.array_equal(found.scores, scores)
        assert looks == [1, 4]


@pytest.mark.parametrize(("order", "batch"), [(-1, 5), (1, 60), (0, 1)])
def test_scores_that_cancel_out_among_lengths_of_eight_decades(tmp_path, generator, monkeypatch, batch, order):
    monkeypatch.setattr(topk, "FEWEST", 40)
    scores_at_once(monkeypatch, 50)
    # Sums are exact in double precision; in single precision those of long vectors come out too large, or as nothing.
    large = generator.integers(1, 8, (240, 8)) * 2.0 ** generator.integers(0, 27, (240, 1))
    vectors = np.concatenate([large, generator.integers(4, 8, (240, 16)), -large], axis=1).astype(np.float32)
    if order:
        vectors = vectors[np.argsort(order * np.linalg.norm(vectors, axis=1))]
    vectors[100] = vectors[101]
    queries = np.concatenate([np.ones((9, 32)), generator.integers(-1, 2, (9, 32)), np.zeros((1, 32))])
    check(tmp_path, queries.astype(np.float32), vectors, (1, 20, 10**6), batch=batch)


# From 1e-4 to 1e4, with all digits, and tiny ones.
@pytest.mark.parametrize("powers", [(-13, 14), (-100, -40), (-149, -116), (-149, 0)])
def test_vectors_of_any_length(tmp_path, generator, powers):
    def make(count, powers=powers):
        shape = count, 24
        numbers = generator.standard_normal(shape) if powers[0] == -13 else generator.integers(-9, 10, shape)
        return (numbers * 2.0 ** generator.integers(*powers, (count, 1))).astype("f4")

    vectors, queries = make(300), np.concatenate([make(10), make(5, (0, 1)), make(5, (50, 51))])
    vectors[7] = 0
    check(tmp_path, queries, vectors, (1, 15, 400))


@pytest.mark.parametrize("fits", [True, False])
def test_exact_scores_of_halves_are_unknown_where_the_order_of_additions_could_show(
    tmp_path, generator, monkeypatch, fits
):
    vectors, queries = random_unit(generator, 300, 64), torch.from_numpy(random_unit(generator, 4, 64))
    # As exactly between two numbers as single precision gets, and beside 1 of 2^-60, which double precision loses.
    vectors[7], queries[0] = 0, 0
    queries[0, :3], vectors[7, :3] = torch.tensor([1, 1, 1]), (1, 2.0**-24, 2.0**-60)
    [shard] = shards(tmp_path, "p", names("d", 300), vectors)
    monkeypatch.setattr(halves, "fit", lambda *given: fits)
    held = halves.Halves(open_vectors([shard]), range(300), "cpu")
    rows = torch.arange(300).expand(4, 300)
    found, expected = held.exact(queries, rows), (queries.double() @ torch.from_numpy(vectors).double().T).float()
    unknown = found.isnan()
    assert torch.equal(found[~unknown], expected[~unknown])
    assert unknown[0, 7]
    assert unknown[1:].any() != fits


def test_a_device_that_adds_halves_in_half_precision_is_not_asked_to(monkeypatch):
    assert halves.is_right("cpu")
    monkeypatch.setattr(halves, "multiply", lambda left, right, out: out.copy_(left @ right.T))
    assert not halves.is_right("cpu")


def test_the_probe_speaks_for_all_shapes(generator):
    def is_exact(dimension, rows, queries):
        whole = [generator.integers(-127, 128, (count, dimension)).astype(np.float32) for count in (rows, queries)]
        for numbers in whole:
            numbers[:, 0] = codes.LARGEST  # so that they are their own codes
        passages, asked = map(torch.from_numpy, whole)
        products = codes.Block(passages, "a test").products(codes.encode_queries(asked, "a test"))
        return torch.equal(products, (asked.double() @ passages.double().T).float())

    shapes = itertools.product((1, 24, 64, 384, 1000), (1, 7, 1_000), (1, 5, 16))
    assert not codes.is_right() or all(itertools.starmap(is_exact, shapes))


def test_a_processor_that_multiplies_codes_wrongly_searches_without_them(tmp_path, generator, monkeypatch):
    right = codes.Block.products
    # As additions of pairs do that saturate.
    monkeypatch.setattr(codes.Block, "products", lambda *given: right(*given).clamp(max=32_767))
    check_search_without_codes(tmp_path, generator, monkeypatch)


def test_a_torch_without_its_private_operator_searches_without_codes(tmp_path, generator, monkeypatch):
    def qlinear_prepack(weight):
        raise TypeError("another signature")

    monkeypatch.setattr("torch.ops.onednn.qlinear_prepack", qlinear_prepack)
    check_search_without_codes(tmp_path, generator, monkeypatch)


def check_search_without_codes(tmp_path, generator, monkeypatch):
    monkeypatch.setattr("torch.cpu._is_vnni_supported", lambda: True)
    p = open_vectors(shards(tmp_path, "p", names("d", 300), random_unit(generator, 300, 16)))
    assert not codes.is_right()
    monkeypatch.setattr(exact, "Codes", None)  # not to be called
    exact.ExactIndex(p, one_by_one=True)


@pytest.mark.parametrize("amx", [True, False])
def test_signed_and_unsigned_codes(tmp_path, generator, monkeypatch, amx):
    monkeypatch.setattr("torch.cpu._is_amx_tile_supported", lambda: amx)
    queries = random_unit(generator, 20, 20)
    check(tmp_path, queries, random_unit(generator, 300, 20), (10,))
    # Without AMX, oneDNN multiplies signed codes of queries some hundred times slower.
    coded = codes.encode_queries(torch.from_numpy(queries), "a test")
    assert coded.codes.dtype == (torch.int8 if amx else torch.uint8)

import numpy as np
import pytest

from cort.config.systems import Reduced
from cort.formats.runs import read_run
from cort.formats.shards import write_shard
from cort.retrieval.reduction import Reduction
from cort.retrieval.vectors import open_vectors
from tests.support.vectors import names, random_unit, shards

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def generator():
    return np.random.default_rng(5)


@pytest.fixture
def reduced(tmp_path):
    """Reduce vectors; the reduction, and the passages as they are after it."""

    def run(vectors, *settings, bounds=(), storage="fp32"):
        paths = shards(tmp_path, f"p{len(bounds)}", names("d", len(vectors)), vectors, bounds, storage=storage)
        reduction = Reduction(open_vectors(paths), Reduced(*settings))
        return reduction, reduction.vectors[np.arange(len(vectors))]

    return run


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_first_numbers_are_cut_and_of_length_1_again(reduced, generator):
    vectors, queries = random_unit(generator, 90, 16), random_unit(generator, 5, 16)
    vectors[7] = 0
    reduction, passages = reduced(vectors, 6, None, True)
    others = np.delete(np.arange(90), 7)
    np.testing.assert_allclose(passages[others], unit(vectors[others, :6]), rtol=1e-6)
    np.testing.assert_allclose(reduction.of_queries(queries), unit(queries[:, :6]), rtol=1e-6)
    assert not passages[7].any()
    # Inner products of vectors of any length: nothing is divided.
    vectors[3] *= 2
    assert np.array_equal(reduced(vectors, 6, None, True)[1], vectors[:, :6])


@pytest.mark.parametrize("rank", [1, 4])
def test_principal_components_of_vectors_of_low_rank_lose_nothing(reduced, generator, rank):
    vectors = unit(generator.standard_normal((80, rank)) @ generator.standard_normal((rank, 16))).astype(np.float32)
    queries = random_unit(generator, 9, 16)
    reduction, passages = reduced(vectors, rank)
    # Up to the part of a query that no passage has.
    whole, left = queries @ vectors.T, reduction.of_queries(queries) @ passages.T
    np.testing.assert_allclose(unit(left), unit(whole), atol=1e-5)


def test_principal_components_keep_more_of_the_inner_products_than_other_numbers(reduced, generator):
    vectors = unit(generator.standard_normal((300, 16)) * 0.7 ** np.arange(16)[::-1]).astype(np.float32)
    whole = vectors @ vectors.T
    errors = [np.square(one @ one.T - whole).sum() for one in (reduced(vectors, 6, None, yes)[1] for yes in (0, 1))]
    # The best approximation of this rank (Eckart and Young) is only slightly worse after lengths are 1 again.
    assert errors[0] < errors[1] / 10


def test_bytes_are_within_half_a_step_and_keep_the_ends(reduced, generator):
    vectors = random_unit(generator, 200, 16)
    vectors[:, 3] = 0.25
    reduction, passages = reduced(vectors, None, "int8")
    step = np.ptp(vectors, axis=0) / 255
    assert (np.abs(passages - vectors) <= step / 2 + 1e-7).all()
    assert all(len(np.unique(column)) <= 256 for column in passages.T)
    np.testing.assert_allclose([passages.min(0), passages.max(0)], [vectors.min(0), vectors.max(0)], atol=1e-7)
    assert np.array_equal(reduction.of_queries(vectors), vectors)


def test_rounded_vectors_may_be_longer_than_the_stored_ones(tmp_path, generator):
    made = {"model": "m", "dimension": 2, "count": 90, "longest": 1.002}
    write_shard(tmp_path / "p.arrow", [(names("d", 90), random_unit(generator, 90, 2))], **made)
    stored = open_vectors([tmp_path / "p.arrow"])
    assert stored.longest == 1.002
    assert Reduction(stored, Reduced(storage="int8")).vectors.longest is None


@pytest.mark.parametrize("settings", [(5,), (5, "int8"), (None, "int8", True), (5, "fp16", True)])
def test_shards_change_no_byte(reduced, generator, settings):
    vectors = random_unit(generator, 120, 16)
    first, second = (reduced(vectors, *settings, bounds=bounds)[1] for bounds in ((), (1, 70, 71)))
    assert first.tobytes() == second.tobytes()


def test_runs_are_those_of_an_encoder_with_such_vectors(tmp_path, generator, stage, refused):
    vectors, queries = (random_unit(generator, rows, 16) for rows in (90, 8))

    def files(name, dimension, storage="fp32"):
        sides = zip(("passages", "queries"), (vectors, queries), ("d", "q"), strict=True)
        return {
            side: shards(tmp_path, name + side, names(letter, len(own)), cut(own, dimension), storage=storage)
            for side, own, letter in sides
        }

    def cut(own, dimension):
        return own if dimension == 16 else unit(own[:, :dimension].astype(np.float64)).astype(np.float32)

    def run(made, **more):
        return stage("retrieve exact", **made, tag="t", output=tmp_path / "run", depth=20, **more).read_bytes()

    stored = files("stored", 16)
    assert run(stored, dimension=16) == run(stored, dimension=16, matryoshka=True) == run(stored)
    assert run(stored, storage="fp16") == run(files("half", 16, "fp16"))
    assert run(stored, dimension=4, matryoshka=True) == run(files("short", 4))
    assert run(stored, dimension=4) != run(files("short", 4))
    assert len(read_run(tmp_path / "run").doc_ids) == 8 * 20
    line = refused("retrieve exact", **stored, tag="t", output=tmp_path / "other", dimension=17)
    assert line.startswith("--dimension: found 17, expected 1 to 16, the numbers of a stored vector")

import re
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from cort import index as stage
from cort.formats.shards import TOKEN_VECTORS
from cort.retrieval import ivfpq
from cort.retrieval.exact import ExactIndex, StoredVectors
from cort.retrieval.index_meta import fingerprint_of
from cort.retrieval.max_similarity import QueryVectors, TokenIndex
from cort.retrieval.vectors import open_vectors
from tests.support.common import command_line
from tests.support.errors import line_of
from tests.support.vectors import shards, token_shards

DIMENSION, COUNT = 8, 400
pytestmark = pytest.mark.usefixtures("one_thread")


def make(generator, count=COUNT, clusters=60, noise=0.2, empty=True):
    """Passages whose tokens lie about some centres, some without any; queries of such tokens."""
    centres = generator.standard_normal((clusters, DIMENSION))

    def text(tokens):
        found = centres[generator.integers(clusters, size=tokens)]
        found += noise * generator.standard_normal((tokens, DIMENSION))
        return found / np.linalg.norm(found, axis=1, keepdims=True)

    sizes = generator.integers(0 if empty else 1, 9, count)
    passages = [text(size).astype(np.float16) for size in sizes]
    queries = []
    for size in generator.integers(1, 6, 12):
        queries.append(QueryVectors(text(size).astype(np.float32), generator.uniform(0.1, 2, size).astype(np.float32)))
    return passages, queries


def write(folder, passages, similarity="cosine", bounds=(), batch=64, model="m", prefix="d"):
    ids = [f"{prefix}{number * 37 % len(passages)}" for number in range(len(passages))]
    return token_shards(folder, ids, passages, bounds, batch, similarity, model)


def encoded(folder, count, bounds=(), batch=64, storage="fp32", doubled=0, model="m"):
    """Shards of an encoder's vectors of any length, the first `doubled` of them twice."""
    folder.mkdir(exist_ok=True)
    vectors = np.random.default_rng(11).standard_normal((count, DIMENSION)).astype(np.float32)
    vectors[count - doubled :] = vectors[:doubled]
    ids = [f"d{number * 37 % count}" for number in range(count)]
    return shards(folder, "p", ids, vectors, bounds, batch, model, storage)


QUERIES = np.random.default_rng(12).standard_normal((9, DIMENSION)).astype(np.float32)


def options(paths, output, **changes):
    return ["ivfpq", *command_line({"passages": paths, "bytes": 4, "lists": 20, "output": output}, changes)]


def build(paths, output, **changes):
    assert stage.main(options(paths, output, **changes)) == 0
    return output


def opened(paths, folder):
    """An index, and exact search in the same passages."""
    own = open_vectors(paths, None)
    if own.origin.passage_length > 1:
        exact = TokenIndex(own)
        return ivfpq.open_ivfpq(folder, exact, 10**6), exact
    return ivfpq.open_ivfpq(folder, StoredVectors(own), 10**6), ExactIndex(own)


def as_bytes(results):
    return [(scores.tobytes(), places.tobytes()) for scores, places in results]


def bytes_of(folder):
    return (folder / "lists.faiss").read_bytes(), (folder / "meta.json").read_bytes()


@pytest.mark.parametrize("kind", ["cosine", "dot", "fp32", "fp16"])
def test_all_lists_and_all_vectors_are_exact_search_to_the_last_bit(tmp_path, kind):
    if kind in ("cosine", "dot"):
        passages, queries = make(np.random.default_rng(3))
        paths = write(tmp_path / "p", passages, kind)
    else:
        # Among them are shards without passages, and equal vectors.
        paths, queries = encoded(tmp_path / "p", 601, (0, 200, 200), storage=kind, doubled=100), QUERIES
    index, exact = opened(paths, build(paths, tmp_path / "index"))
    search = ivfpq.IvfPqSearch(index, 20)
    for depth in (1, 30, 1000):
        expected = as_bytes(exact.search(queries, depth))
        assert as_bytes(search.search(queries, depth)) == expected
        assert as_bytes(ivfpq.IvfPqSearch(index, 99, threads=3).search(queries, depth)) == expected
    places = exact.search(queries, 5)[0][1]
    assert search.ids(places) == exact.ids(places)


# Of clustered vectors, 4 of 64 lists have nearly all.
@pytest.mark.parametrize(("kind", "lists", "of_four"), [("cosine", 64, 0.9), ("dot", 64, 0.9), ("encoder", 32, 0)])
def test_results_have_exact_scores_and_more_probes_find_more(tmp_path, kind, lists, of_four):
    if kind == "encoder":
        paths, queries = encoded(tmp_path / "p", 2000), QUERIES
    else:
        passages, queries = make(np.random.default_rng(4), 2000, empty=False)
        paths = write(tmp_path / "p", passages, kind)
    index, exact = opened(paths, build(paths, tmp_path / "index", lists=lists))
    scores_of = [dict(zip(*map(np.ndarray.tolist, one[::-1]), strict=True)) for one in exact.search(queries, 2000)]
    recalls = []
    for probes in (1, 4, lists):
        shares = []
        found = ivfpq.IvfPqSearch(replace(index, candidates=200), probes).search(queries, 10)
        for (scores, places), known in zip(found, scores_of, strict=True):
            assert scores.tolist() == [known[place] for place in places.tolist()]
            assert scores.tolist() == sorted(scores.tolist(), reverse=True)
            assert len(set(places.tolist())) == len(places) == 10
            shares.append(len({*places.tolist()} & {*[*known][:10]}) / 10)
        recalls.append(np.mean(shares))
    assert recalls == sorted(recalls)
    assert recalls[0] < 1
    assert recalls[1] > of_four
    assert recalls[-1] > 0.98


def test_candidates_are_the_passages_of_the_nearest_vectors(tmp_path):
    """With codes that lose next to nothing, those of the nearest vectors by brute force."""
    generator = np.random.default_rng(5)
    words = generator.standard_normal((200, DIMENSION))
    words /= np.linalg.norm(words, axis=1, keepdims=True)
    passages = [words[generator.integers(200, size=6)].astype(np.float16) for _ in range(300)]
    paths = write(tmp_path / "p", passages)
    # 200 different vectors, as many codewords for each half.
    index, _ = opened(paths, build(paths, tmp_path / "index", bytes=2, lists=1))
    query = QueryVectors(words[:1].astype(np.float32), np.ones(1, np.float32))
    own = [number for number, one in enumerate(passages) if (one == words[0].astype(np.float16)).all(1).any()]
    wanted = sum(int((one == words[0].astype(np.float16)).all(1).sum()) for one in passages)
    scores, places = replace(index, candidates=wanted).search(query, 1, 100)
    assert sorted(index.passages.ids(places)) == sorted(f"d{number * 37 % 300}" for number in own)
    assert scores == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("kind", ["tokens", "encoder"])
def test_an_index_depends_neither_on_shards_and_blocks_nor_on_threads(tmp_path, kind):
    passages, found = make(np.random.default_rng(6))[0], set()
    for number, (bounds, batch, threads) in enumerate([((), 64, 1), ((100, 101), 7, 2), ((300,), 500, 3)]):
        folder, cut = tmp_path / str(number), {"bounds": bounds, "batch": batch}
        paths = write(folder, passages, **cut) if kind == "tokens" else encoded(folder, 500, **cut)
        found.add(bytes_of(build(paths, tmp_path / f"index{number}", threads=threads)))
    assert len(found) == 1
    assert bytes_of(build(paths, tmp_path / "other", seed=43)) not in found


def test_sample_chunks_and_fingerprint_follow_the_tokens(tmp_path, monkeypatch):
    passages, _ = make(np.random.default_rng(7))
    tokens = np.concatenate(passages).astype(np.float32)
    rows = np.repeat(np.arange(COUNT), [len(one) for one in passages])
    vectors = open_vectors(write(tmp_path / "p", passages, bounds=(13, 200), batch=9), TOKEN_VECTORS)
    monkeypatch.setattr(ivfpq, "ADDED_AT_ONCE", 100)
    parts = list(ivfpq.chunks(vectors))
    assert {len(one) for one, _ in parts[:-1]} == {100}
    assert np.array_equal(np.concatenate([one for one, _ in parts]), tokens)
    assert np.array_equal(np.concatenate([one for _, one in parts]), rows)
    assert np.array_equal(ivfpq.draw_vectors(vectors, len(tokens), 1), tokens)
    # One of each tenth.
    drawn = ivfpq.draw_vectors(vectors, 10, 1)
    places = [int(np.flatnonzero((tokens == one).all(1))[0]) for one in drawn]
    assert [place * 10 // len(tokens) for place in places] == list(range(10))
    assert not np.array_equal(drawn, ivfpq.draw_vectors(vectors, 10, 2))
    known = fingerprint_of(open_vectors(write(tmp_path / "again", passages), TOKEN_VECTORS))
    assert known == fingerprint_of(vectors)
    changed = [*passages[:-1], np.concatenate([passages[-1], passages[0], tokens[:1].astype(np.float16)])]
    assert known != fingerprint_of(open_vectors(write(tmp_path / "longer", changed), TOKEN_VECTORS))
    assert known != fingerprint_of(open_vectors(write(tmp_path / "named", passages, prefix="e"), TOKEN_VECTORS))


@pytest.mark.parametrize(
    ("tokens", "lists", "sample"),
    [(1, 1, 1), (2, 2, 2), (4, 2, 4), (1000, 32, 1000), (2_200_000, 2048, 131_072), (600_000_000, 32_768, 2_097_152)],
)
def test_the_default_lists_are_the_root_of_the_tokens_rounded_up_to_a_power_of_2(tokens, lists, sample):
    assert (ivfpq.default_lists(tokens), ivfpq.sample_size(tokens, lists)) == (lists, sample)
    assert lists**2 >= tokens > (lists / 2) ** 2 or tokens == 1


@pytest.mark.parametrize(
    ("count", "changes", "line"),
    [
        (COUNT, {"bytes": 3}, "--bytes: found 3, expected a divisor of the dimension, 8"),
        (COUNT, {"lists": 99_999}, "--lists: found 99999, expected 1553 at most, the number of vectors"),
        (20, {}, r".*/p/0-64-0.arrow: found \d+ vectors, expected 256 or more"),
    ],
)
def test_too_few_vectors_and_options_that_do_not_fit_are_refused(tmp_path, complaint, count, changes, line):
    paths = write(tmp_path / "p", make(np.random.default_rng(8), count)[0])
    assert re.match(line, complaint(stage.main, options(paths, tmp_path / "index", **changes), tmp_path / "index"))


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"model": "n"}, "model m, expected model n"),
        ({"similarity": "dot"}, "similarity cosine, expected similarity dot"),
        ({"prefix": "e"}, "1553 vectors of 400 passages ("),
        ({"count": 300, "model": "n"}, "model m, expected model n"),
        ({"count": 301}, "300 vectors of 300 passages"),
    ],
)
def test_an_index_of_other_vectors_is_refused(tmp_path, changes, found):
    passages, _ = make(np.random.default_rng(8))
    own = encoded(tmp_path / "p", 300) if "count" in changes else write(tmp_path / "p", passages)
    folder, kind = build(own, tmp_path / "index"), encoded if "count" in changes else partial(write, passages=passages)
    paths = kind(tmp_path / "other", **changes)
    assert line_of(opened, paths, folder).startswith(f"{folder}/meta.json: found an index of {found}")


def test_a_damaged_index_is_refused(tmp_path):
    paths = write(tmp_path / "p", make(np.random.default_rng(8))[0])
    folder = build(paths, tmp_path / "index")
    path = folder / "lists.faiss"
    path.write_bytes(b"none" + path.read_bytes()[4:])
    assert line_of(opened, paths, folder).startswith(f"{path}: found an index that cannot be read (")
    path.unlink()
    assert line_of(opened, paths, folder).startswith(f"{path}: found an index that cannot be read (")


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_an_encoders_vectors_that_are_no_numbers_are_refused(tmp_path, complaint, number):
    vectors = np.ones((300, DIMENSION), np.float32)
    vectors[7, 1] = number
    (path,) = shards(tmp_path, "p", [str(row) for row in range(300)], vectors)
    assert complaint(stage.main, options([path], tmp_path / "index"), tmp_path / "index").startswith(f"{path}: found ")

import json
import re
import signal
import subprocess
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from cort import index
from cort.formats.runs import read_run
from cort.retrieval import graph_build, graph_search
from cort.retrieval.indexes import GRAPHS, INDEXES
from tests.support.common import command_line, wait_until
from tests.support.processes import Python
from tests.support.vectors import DIMENSION, copy, names, random_unit, shard, unit, write_world

# A width with which (nearly) all of the exact results are found, options with a fast build, and settings in meta.json.
WIDE = {"hnsw": "400", "onng": "0.8"}
FEW_EDGES = {"hnsw": {"M": 8}, "onng": {"edges": 20}}
SETTINGS = {
    "hnsw": {"M": 16, "ef_construction": 200},
    "onng": {"edges": 100, "outgoing": 10, "incoming": 120, "distance": "Normalized L2"},
}


def build(kind, folder, passages, **more):
    named = {"passages": passages, "threads": 2, "output": folder / "index"}
    assert index.main([kind, *command_line(named, more)]) == 0
    return folder / "index"


def asked(kind, folder, queries=None, place=None):
    """Options of a search in the index of a folder, or in another one."""
    named = {"kind": kind, "queries": queries or folder / "q.arrow", "index": place or folder / "index", "tag": "t"}
    return named | {"output": folder / "runs" / "run.trec"}


@pytest.fixture
def search(stage):
    return lambda *where, **more: stage("retrieve graph", **asked(*where), **more)


@pytest.fixture(scope="module", params=GRAPHS)
def built(request, tmp_path_factory):
    """A kind of index, and a folder with one of 400 vectors of which 100 occur twice."""
    folder = tmp_path_factory.mktemp(request.param)
    build(request.param, folder, write_world(folder))
    return request.param, folder


@pytest.fixture(params=GRAPHS)
def kind(request):
    return request.param


def passages_of(folder, vectors, name="p", **more):
    return shard(folder / f"{name}.arrow", names("d", len(vectors)), vectors, **more)


def same_files(one, other):
    files = {path.name for path in one.glob("[!.]*")}
    assert files == {path.name for path in other.glob("[!.]*")}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in files)


def test_meta_json_describes_the_index_and_its_files(built):
    kind, folder = built
    meta = json.loads((folder / "index" / "meta.json").read_text())
    sizes, fingerprint = meta.pop("bytes"), meta.pop("fingerprint")
    origin = {"kind": kind, "model": "m", "similarity": "dot", "dimension": DIMENSION}
    assert meta == {**origin, "passages": 400, "vectors": 400, "settings": SETTINGS[kind], "extent": None}
    assert len(fingerprint) == 16
    files = {path.name: path.stat().st_size for path in (folder / "index").glob("[!.]*")}
    assert files.pop("meta.json") > 0
    assert set(files) == {*INDEXES[kind].files}
    assert sizes == files


def test_shards_blocks_and_threads_change_no_byte_of_an_index(built, tmp_path, monkeypatch):
    kind, folder = built
    if kind == "onng":
        # Blocks that end within shards, and within the blocks of shards; NGT links 200 vectors at a time.
        monkeypatch.setattr(graph_build, "ADDED_AT_ONCE", 200)
    for passages, threads in ((["all.arrow"], 1), (["p1.arrow", "p2.arrow"], 3), (["all.arrow"], 8)):
        output = build(kind, tmp_path, [folder / name for name in passages], threads=threads)
        assert same_files(output, folder / "index")


def test_threads_change_no_byte_of_an_hnsw_graph_of_several_blocks_and_layers(tmp_path, monkeypatch):
    monkeypatch.setattr(graph_build, "ADDED_AT_ONCE", 1_000)
    passages = passages_of(tmp_path, unit(1, 3_000))
    one = build("hnsw", tmp_path, passages, threads=1)
    for threads in (2, 3, 4, 8):
        assert same_files(one, build("hnsw", tmp_path / str(threads), passages, threads=threads))


def test_blocks_leave_no_hnsw_passage_behind(tmp_path, search, monkeypatch):
    """Early releases of faiss lost what earlier blocks had added when a later one raised the entry point."""
    monkeypatch.setattr(graph_build, "ADDED_AT_ONCE", 50)
    vectors = unit(1, 2_000)
    build("hnsw", tmp_path, passages_of(tmp_path, vectors))
    queries = shard(tmp_path / "q.arrow", names("q", 500), vectors[:500])
    found = read_run(search("hnsw", tmp_path, queries, width=50, depth=1))
    assert sum(ranking.doc_ids == [f"d{number}"] for number, ranking in enumerate(found)) >= 0.99 * 500


def test_copies_of_one_vector_do_not_hide_others_in_an_hnsw_graph(tmp_path, search):
    vectors = random_unit(np.random.default_rng(1), 4_000, 32)
    vectors[::4] = vectors[0]
    build("hnsw", tmp_path, passages_of(tmp_path, vectors))
    queries = random_unit(np.random.default_rng(2), 50, 32)
    exact = queries.astype(np.float64) @ vectors.T.astype(np.float64)
    shard(tmp_path / "q.arrow", names("q", 50), queries)
    recall = []
    for scores, ranking in zip(exact, read_run(search("hnsw", tmp_path, width=100, depth=100)), strict=True):
        own = scores[[int(doc_id[1:]) for doc_id in ranking.doc_ids]]
        recall.append((own >= np.sort(scores)[-100] - 1e-6).mean())
    # Without `keep_max_size_level0`, it is .91.
    assert np.mean(recall) >= 0.98


def test_a_wide_search_finds_what_brute_force_finds(built, search):
    kind, folder = built
    vectors = np.concatenate([unit(1, 400)[:300], unit(1, 400)[:100]]).astype(np.float64)
    found = read_run(search(kind, folder, width=WIDE[kind], depth=400))
    assert found.query_ids == names("q", 70)
    missed = 0
    for scores, ranking in zip(unit(2, 70).astype(np.float64) @ vectors.T, found, strict=True):
        own = scores[[int(doc_id[1:]) for doc_id in ranking.doc_ids]]
        assert np.allclose(ranking.scores, own, rtol=0, atol=1e-6)
        missed += (own[:50] < np.sort(scores)[-50] - 1e-6).sum()
        # Passages with equal vectors are ordered by id.
        place = {doc_id: rank for rank, doc_id in enumerate(ranking.doc_ids)}
        twins = [sorted((f"d{number}", f"d{number + 300}")) for number in range(100)]
        assert all(place[one] < place[other] for one, other in twins if {one, other} <= {*place})
    # At this width, HNSW looks at all passages.
    assert missed <= {"hnsw": 0, "onng": 0.005 * 70 * 50}[kind]


def test_processes_blocks_and_repetition_change_no_byte_of_a_run(built, search, monkeypatch):
    results = set()
    for threads, block in ((1, 64), (2, 64), (2, 7), (1, 64)):
        monkeypatch.setattr(graph_search, "QUERIES_PER_BLOCK", block)
        width = {"width": 20} if built[0] == "hnsw" else {}
        results.add(search(*built, threads=threads, depth=20, **width).read_bytes())
    assert len(results) == 1


def test_a_larger_epsilon_finds_more(tmp_path, search):
    build("onng", tmp_path, write_world(tmp_path))
    truth = np.argsort(-(unit(2, 70) @ unit(1, 400)[:300].T), axis=1)[:, 0]
    hits = []
    for epsilon in (-0.9, 0.5):
        found = read_run(search("onng", tmp_path, width=epsilon, depth=2)).by_query()
        hits.append(sum(f"d{truth[number]}" in found[f"q{number}"] for number in range(70)))
    assert hits[0] < hits[1] == 70


def test_a_disconnected_hnsw_graph_gives_the_passages_that_can_be_reached(tmp_path, search, capsys):
    """Copies of one vector fill the edges of their nodes, and nothing leads to the others."""
    vectors = np.concatenate([np.repeat(unit(7, 1), 200, axis=0), np.repeat(unit(8, 1), 200, axis=0)])
    build("hnsw", tmp_path, passages_of(tmp_path, vectors), M=2, ef_construction=2)
    queries = shard(tmp_path / "q.arrow", ["q"], unit(7, 1))
    (ranking,) = read_run(search("hnsw", tmp_path, queries, width=400, depth=400))
    assert 1 <= len(ranking.doc_ids) < 400
    assert len({*ranking.doc_ids}) == len(ranking.doc_ids)
    exact = {f"d{number}": score for number, score in enumerate(vectors @ unit(7, 1)[0])}
    assert np.allclose(ranking.scores, [exact[doc_id] for doc_id in ranking.doc_ids], atol=1e-4)
    assert "1 of 1 queries have fewer than 400 results" in capsys.readouterr().err


def test_a_depth_beyond_the_passages_gives_all_of_them_also_in_half_precision(tmp_path, kind, search):
    passages = passages_of(tmp_path, unit(5, 60).astype(np.float16), storage="fp16")
    build(kind, tmp_path, passages, **FEW_EDGES[kind])
    run = read_run(search(kind, tmp_path, passages, width={"hnsw": 1000, "onng": 0.8}[kind], depth=1000))
    assert {len(ranking.doc_ids) for ranking in run} == {60}
    assert [ranking.doc_ids[0] for ranking in run] == run.query_ids


def test_zero_vectors_score_0(tmp_path, kind, search, stage):
    vectors, queries = unit(1, 120), unit(2, 3)
    # None of them is among the best for a query or, by id, for one that is zero.
    vectors[[7, 97, 99]], queries[1] = 0, 0
    passages = [shard(tmp_path / f"{at}.arrow", names("d", 120)[at : at + 60], vectors[at : at + 60]) for at in (0, 60)]
    files = {"queries": shard(tmp_path / "q.arrow", names("q", 3), queries), "passages": passages}
    build(kind, tmp_path, passages)
    run = search(kind, tmp_path, width=WIDE[kind], depth=20)
    exact = stage("retrieve exact", **files, gpus=0, depth=20, tag="t", output=tmp_path / "exact.trec")
    for found, expected in zip(read_run(run), read_run(exact), strict=True):
        assert found.doc_ids == expected.doc_ids
        assert np.allclose(found.scores, expected.scores, atol=1e-6)
    about = {"kind": kind, "index": tmp_path / "index", "encoder": "e", "split": "s", "depths": 20}
    output = stage("audit graph", **about, **files, widths=WIDE[kind], output=tmp_path / "audit.json")
    [measured] = json.loads(output.read_text())["searches"]
    assert measured["recall"] == 1


@pytest.mark.parametrize(
    ("kinds", "vectors", "found"),
    [
        (GRAPHS, 2 * unit(3, 60), "a vector of length 2"),
        (GRAPHS, unit(3, 60) * np.nan, "a vector of length nan"),
        (GRAPHS, unit(3, 0), "no passage"),
        (["onng"], 0 * unit(1, 30), "zero vectors alone"),
    ],
)
def test_what_no_index_can_be_built_of_is_refused(tmp_path, refused, kinds, vectors, found):
    for kind in kinds:
        passages = passages_of(tmp_path, vectors)
        line = refused(f"index {kind}", passages=passages, output=tmp_path / "index")
        assert line.startswith(f"{passages}: found {found}, expected ")
        assert [path.name for path in tmp_path.iterdir()] == ["p.arrow"]


def test_queries_that_do_not_fit_are_refused(built, tmp_path, refused):
    kind, folder = built
    for name, vectors, model, found in (
        ("model", unit(2, 1), "n", "embeddings of model n"),
        ("wide", np.eye(1, 20, dtype=np.float32), "m", "embeddings of dimension 20, expected dimension 16"),
        ("long", 3 * unit(2, 1), "m", "a vector of length 3"),
    ):
        queries = shard(tmp_path / f"{name}.arrow", ["q"], vectors, model=model)
        line = refused("retrieve graph", **asked(kind, tmp_path, queries, folder / "index"))
        assert line.startswith(f"{queries}: found {found}")
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder, kind: (folder / INDEXES[kind].files[0]).write_bytes(b""), "found an index that cannot be read"),
        (lambda folder, kind: (folder / INDEXES[kind].files[0]).unlink(), "found an index that cannot be read"),
        (lambda folder, kind: (folder / "ids.arrow").unlink(), "No such file"),
        (lambda folder, kind: (folder / "meta.json").write_text("{"), "damaged/meta.json: found unreadable"),
        (lambda folder, kind: (folder / "meta.json").unlink(), "No such file"),
    ],
)
def test_damaged_indexes_are_refused(built, tmp_path, refused, damage, words):
    kind, folder = built
    damage(place := copy(folder, tmp_path / "damaged"), kind)
    assert words in refused("retrieve graph", **asked(kind, tmp_path, folder / "q.arrow", place))


def test_an_index_of_the_other_kind_is_refused(built, tmp_path, refused):
    kind, folder = built
    (other,) = {*GRAPHS} - {kind}
    line = refused("retrieve graph", **asked(other, tmp_path, folder / "q.arrow", folder / "index"))
    assert line.startswith(f"{folder}/index/meta.json: found an index of the kind {kind}, ")


@pytest.mark.parametrize(
    ("kind", "changes", "found"),
    [
        ("hnsw", {"width": 20.5}, "ef 20.5"),
        ("hnsw", {"width": 19, "depth": 20}, "ef 19, expected an integer, 20 (the depth) or more"),
        ("onng", {"width": -1}, "epsilon -1, expected a number, above -1"),
    ],
)
def test_widths_that_no_search_can_have_are_refused(tmp_path, refused, kind, changes, found):
    build(kind, tmp_path, passages := passages_of(tmp_path, unit(3, 60)), **FEW_EDGES[kind])
    assert refused("retrieve graph", **asked(kind, tmp_path, passages), **changes).startswith(f"--width: found {found}")


def test_no_queries_give_an_empty_run(built, tmp_path, search):
    queries = shard(tmp_path / "none.arrow", [], unit(2, 0))
    assert search(built[0], tmp_path, queries, built[1] / "index").read_bytes() == b""


KILLED = """
import sys
from cort import index
from cort.retrieval import graph_build
graph_build.ADDED_AT_ONCE, graph_build.MOST = 200, 0
sys.exit(index.main(sys.argv[1:]))
"""


def start(kind, folder, passages):
    named = {"passages": passages, **FEW_EDGES[kind], "threads": 1, "output": folder / "index", "log": folder / "log"}
    named["checkpoints"] = folder / "kept"
    return Python("-c", KILLED, kind, *command_line(named), stderr=subprocess.DEVNULL)


def kept_vectors(folder):
    try:
        return json.loads((folder / "kept" / "graph" / "progress.json").read_text())["added"]
    except FileNotFoundError:
        return 0


def test_a_killed_build_resumes_to_the_same_bytes(tmp_path, kind, monkeypatch):
    passages = passages_of(tmp_path, unit(1, 4_000))
    with start(kind, tmp_path, passages) as process:
        wait_until(lambda: kept_vectors(tmp_path) >= 800 or process.poll() is not None, pause=0.01)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    before = kept_vectors(tmp_path)
    assert 800 <= before < 4_000
    assert start(kind, tmp_path, passages).wait() == 0
    assert int(re.search(r"resumes after (\d+) vectors", (tmp_path / "log").read_text())[1]) == before
    assert sorted(path.name for path in tmp_path.glob("[!.]*")) == ["index", "log", "p.arrow"]
    monkeypatch.setattr(graph_build, "ADDED_AT_ONCE", 200)
    assert same_files(tmp_path / "index", build(kind, tmp_path / "whole", passages, **FEW_EDGES[kind]))


def keep_some(folder, passages, monkeypatch, refused):
    """Build until a checkpoint is written, and fail then."""

    def one_and_fail(items, *_):
        yield next(items)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(graph_build, "ADDED_AT_ONCE", 200)
        patch.setattr(graph_build, "MOST", 0)
        patch.setattr(graph_build, "track", one_and_fail)
        named = {"passages": passages, "edges": 20, "threads": 2, "checkpoints": folder / "kept"}
        refused("index onng", **named, output=folder / "index")
    assert kept_vectors(folder) == 200


@pytest.mark.parametrize(("cost", "pause"), [(1, 600), (100, 19 * 100), (1000, 12 * 600)])
def test_checkpoints_take_a_twentieth_of_the_time_or_come_every_two_hours(tmp_path, monkeypatch, cost, pause):
    now, saved = [0], []
    monkeypatch.setattr(graph_build, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(graph_build, "ADDED_AT_ONCE", 1)
    options = SimpleNamespace(checkpoints=tmp_path / "kept")

    def save():
        saved.append(now[0])
        now[0] += cost

    (tmp_path / "work").mkdir()
    none, vectors = graph_build.Progress("", 0, {}), np.zeros((20_000, 1))
    for _ in graph_build.blocks(options, vectors, np.arange(20_000), none, tmp_path / "work", save):
        now[0] += 1
    assert saved[:3] == [600, 600 + cost + pause, 600 + 2 * (cost + pause)]


@pytest.mark.parametrize(("edges", "seed"), [(20, 2), (30, 1)], ids=["other vectors", "other edges"])
def test_checkpoints_of_another_build_are_not_used(tmp_path, monkeypatch, refused, capsys, edges, seed):
    keep_some(tmp_path, passages_of(tmp_path, unit(1, 600)), monkeypatch, refused)
    passages = passages_of(tmp_path, unit(seed, 600))
    capsys.readouterr()
    output = build("onng", tmp_path, passages, edges=edges, checkpoints=tmp_path / "kept")
    assert "resumes after" not in capsys.readouterr().err
    assert not (tmp_path / "kept").exists()
    assert same_files(output, build("onng", tmp_path / "whole", passages, edges=edges))


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"{"), Path.unlink], ids=["damaged", "missing"])
@pytest.mark.parametrize("name", ["grp", "progress.json"])
def test_a_build_begins_anew_without_a_damaged_checkpoint(tmp_path, monkeypatch, refused, capsys, name, damage):
    passages = passages_of(tmp_path, unit(1, 600))
    keep_some(tmp_path, passages, monkeypatch, refused)
    damage(path := tmp_path / "kept" / "graph" / name)
    capsys.readouterr()
    output = build("onng", tmp_path, passages, edges=20, checkpoints=tmp_path / "kept")
    said = capsys.readouterr().err
    assert re.search(f"WARNING the build begins anew, without a damaged checkpoint: .*{re.escape(str(path))}", said)
    assert "resumes after" not in said
    assert not (tmp_path / "kept").exists()
    assert same_files(output, build("onng", tmp_path / "whole", passages, edges=20))

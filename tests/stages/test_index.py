import builtins
import json
import re
import signal
import subprocess

import numpy as np
import pytest

from cort import audit, index, retrieve
from cort.formats.runs import read_run
from cort.retrieval import graph_search
from cort.retrieval.graph_search import open_index
from cort.retrieval.graphs import GRAPHS
from tests.support.common import wait_until
from tests.support.processes import Python
from tests.support.vectors import DIMENSION, copy, names, shard, unit, write_world

# A width with which (nearly) all of the exact results are found, options with a fast build, and settings in meta.json.
WIDE = {"hnsw": "400", "onng": "0.8"}
FEW_EDGES = {"hnsw": ("--M", "8"), "onng": ("--edges", "20")}
SETTINGS = {
    "hnsw": {"M": 16, "ef_construction": 200, "space": "ip"},
    "onng": {"edges": 100, "outgoing": 10, "incoming": 120, "distance": "Normalized L2"},
}


def build(kind, folder, passages, *more):
    output = folder / "index"
    threads = ("--threads", "2") if kind == "onng" else ()
    return index.main([kind, "--passages", *map(str, passages), *threads, "--output", str(output), *more]), output


def search(kind, folder, queries, place, *more):
    output = folder / "runs" / "run.trec"
    options = ["--kind", kind, "--queries", str(queries), "--index", str(place), "--tag", "t", "--output", str(output)]
    return retrieve.main(["graph", *options, *more]), output


@pytest.fixture(scope="module", params=GRAPHS)
def built(request, tmp_path_factory):
    """A kind of index, and a folder with one of 400 vectors of which 100 occur twice."""
    folder = tmp_path_factory.mktemp(request.param)
    assert build(request.param, folder, write_world(folder))[0] == 0
    return request.param, folder


@pytest.fixture(params=GRAPHS)
def kind(request):
    return request.param


def searched(built, *more, folder=None):
    """Search the built index for its queries; the path of the run."""
    kind, where = built
    status, output = search(kind, folder or where, where / "q.arrow", where / "index", *more)
    assert status == 0
    return output


def same_files(one, other):
    files = {path.name for path in one.glob("[!.]*")}
    assert files == {path.name for path in other.glob("[!.]*")}
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in files)


def test_meta_json_describes_the_index_and_its_files(built):
    kind, folder = built
    meta = json.loads((folder / "index" / "meta.json").read_text())
    sizes = meta.pop("bytes")
    assert meta == {"model": "m", "count": 400, "dimension": DIMENSION, **SETTINGS[kind]}
    files = {path.name: path.stat().st_size for path in (folder / "index").glob("[!.]*")}
    assert files.pop("meta.json") > 0
    assert set(files) == {*GRAPHS[kind].files, "ids.arrow"}
    assert sizes == files


def test_shards_blocks_and_threads_change_no_byte_of_an_index(built, tmp_path, monkeypatch):
    kind, folder = built
    # Of HNSW blocks that end within shards, and within the blocks of shards.
    monkeypatch.setattr(index, "VECTORS_ADDED_AT_ONCE", 37)
    more = ("--threads", "1") if kind == "onng" else ()
    for passages in ([folder / "all.arrow"], [folder / "p1.arrow", folder / "p2.arrow"]):
        status, output = build(kind, tmp_path, passages, *more)
        assert status == 0
        assert same_files(output, folder / "index")


def test_a_wide_search_finds_what_exact_retrieval_finds_with_its_scores(built):
    kind, folder = built
    found = read_run(searched(built, "--width", WIDE[kind], "--depth", "50"))
    exact = folder / "runs" / "exact.trec"
    options = ["--queries", str(folder / "q.arrow"), "--passages", str(folder / "all.arrow"), "--device", "cpu"]
    assert retrieve.main(["exact", *options, "--depth", "50", "--tag", "t", "--output", str(exact)]) == 0
    expected = read_run(exact)
    assert found.query_ids == expected.query_ids
    shared = [len({*best.doc_ids} & {*own.doc_ids}) for best, own in zip(expected, found, strict=True)]
    assert min(shared) >= 49 or sum(shared) / len(expected.doc_ids) > 0.995
    truth = {(r.query_id, d): s for r in expected for d, s in zip(r.doc_ids, r.scores, strict=True)}
    scores = {(r.query_id, d): s for r in found for d, s in zip(r.doc_ids, r.scores, strict=True)}
    assert max(abs(truth[pair] - scores[pair]) for pair in truth.keys() & scores.keys()) < 1e-6


def test_a_search_of_hnsw_finds_what_brute_force_finds(tmp_path):
    vectors, queries = unit(1, 400), unit(2, 70)
    assert build("hnsw", tmp_path, [shard(tmp_path / "p.arrow", names("d", 400), vectors)])[0] == 0
    graph = open_index("hnsw", tmp_path / "index")
    for query in queries:
        found = graph.search(query, 400, 10)
        products = vectors.astype(np.float64) @ query.astype(np.float64)
        assert np.allclose(found.scores, np.sort(products)[::-1][:10], atol=1e-6)
        assert np.allclose(products[found.rows], found.scores, atol=1e-6)


def test_passages_with_equal_vectors_are_ordered_by_doc_id(built):
    for ranking in read_run(searched(built, "--width", WIDE[built[0]], "--depth", "400")):
        place = {doc_id: rank for rank, doc_id in enumerate(ranking.doc_ids)}
        for number in range(100):
            first, second = sorted((f"d{number}", f"d{number + 300}"))
            if {first, second} <= set(place):
                assert place[first] < place[second]


def test_processes_blocks_and_repetition_change_no_byte_of_a_run(built, monkeypatch):
    results = set()
    for threads, block in (("1", 64), ("2", 64), ("2", 7), ("1", 64)):
        monkeypatch.setattr(graph_search, "QUERIES_PER_BLOCK", block)
        width = ("--width", "20") if built[0] == "hnsw" else ()
        results.add(searched(built, "--threads", threads, "--depth", "20", *width).read_bytes())
    assert len(results) == 1


def test_a_larger_epsilon_finds_more(tmp_path):
    passages = write_world(tmp_path)
    assert build("onng", tmp_path, passages)[0] == 0
    truth = np.argsort(-(unit(2, 70) @ unit(1, 400)[:300].T), axis=1)[:, 0]
    hits = []
    for epsilon in ("-0.9", "0.5"):
        found = read_run(searched(("onng", tmp_path), "--width", epsilon, "--depth", "2")).by_query()
        hits.append(sum(f"d{truth[number]}" in found[f"q{number}"] for number in range(70)))
    assert hits[0] < hits[1] == 70


def test_a_disconnected_hnsw_graph_gives_the_passages_that_can_be_reached(tmp_path):
    """Copies of one vector fill the edges of their nodes, and nothing leads to the others."""
    vectors = np.concatenate([np.repeat(unit(7, 1), 200, axis=0), np.repeat(unit(8, 1), 200, axis=0)])
    passages = shard(tmp_path / "p.arrow", names("d", 400), vectors)
    assert build("hnsw", tmp_path, [passages], "--M", "2", "--ef-construction", "2")[0] == 0
    queries = shard(tmp_path / "q.arrow", ["q"], unit(7, 1))
    graph = open_index("hnsw", tmp_path / "index")
    with pytest.raises(RuntimeError):
        graph.index.set_ef(400)
        graph.index.knn_query(unit(7, 1), k=400)
    status, output = search("hnsw", tmp_path, queries, tmp_path / "index", "--width", "400", "--depth", "400")
    assert status == 0
    (ranking,) = read_run(output)
    found = len(ranking.doc_ids)
    assert 1 <= found < 400
    assert len(set(ranking.doc_ids)) == found
    # All that can be reached: one more is refused.
    assert len(graph.index.knn_query(unit(7, 1), k=found)[0][0]) == found
    with pytest.raises(RuntimeError):
        graph.index.knn_query(unit(7, 1), k=found + 1)


def test_a_depth_beyond_the_passages_gives_all_of_them(tmp_path, kind):
    passages = shard(tmp_path / "p.arrow", names("d", 60), unit(1, 60))
    assert build(kind, tmp_path, [passages], *FEW_EDGES[kind])[0] == 0
    more = ("--width", {"hnsw": "1000", "onng": "0.8"}[kind], "--depth", "1000")
    status, output = search(kind, tmp_path, passages, tmp_path / "index", *more)
    assert status == 0
    assert {len(ranking.doc_ids) for ranking in read_run(output)} == {60}


def test_vectors_in_half_precision(tmp_path, kind):
    vectors = unit(5, 120).astype(np.float16)
    passages = shard(tmp_path / "p.arrow", names("d", 120), vectors, storage="fp16")
    assert build(kind, tmp_path, [passages])[0] == 0
    status, output = search(kind, tmp_path, passages, tmp_path / "index", "--depth", "1", "--width", WIDE[kind])
    assert status == 0
    run = read_run(output)
    assert [ranking.doc_ids[0] for ranking in run] == run.query_ids


def test_zero_vectors_score_0(tmp_path, kind):
    vectors, queries = unit(1, 120), unit(2, 3)
    # None of them is among the best for a query or, by id, for one that is zero.
    vectors[[7, 97, 99]], queries[1] = 0, 0
    passages = [shard(tmp_path / f"{at}.arrow", names("d", 120)[at : at + 60], vectors[at : at + 60]) for at in (0, 60)]
    asked = shard(tmp_path / "q.arrow", names("q", 3), queries)
    assert build(kind, tmp_path, passages)[0] == 0
    status, output = search(kind, tmp_path, asked, tmp_path / "index", "--width", WIDE[kind], "--depth", "20")
    assert status == 0
    exact = ["--queries", asked, "--passages", *passages, "--device", "cpu", "--depth", "20", "--tag", "t"]
    assert retrieve.main(["exact", *exact, "--output", str(tmp_path / "exact.trec")]) == 0
    for found, expected in zip(read_run(output), read_run(tmp_path / "exact.trec"), strict=True):
        assert found.doc_ids == expected.doc_ids
        assert np.allclose(found.scores, expected.scores, atol=1e-6)
    about = ["--kind", kind, "--index", str(tmp_path / "index"), "--encoder", "e", "--split", "s", "--depths", "20"]
    files = ["--queries", asked, "--passages", *passages, "--output", str(tmp_path / "audit.json")]
    assert audit.main(["graph", *about, "--widths", WIDE[kind], *files]) == 0
    [measured] = json.loads((tmp_path / "audit.json").read_text())["searches"]
    assert measured["recall"] == 1


def test_zero_vectors_alone_are_no_graph(tmp_path, capsys):
    passages = shard(tmp_path / "p.arrow", names("d", 30), 0 * unit(1, 30))
    assert build("onng", tmp_path, [passages])[0] == 1
    assert "p.arrow: found zero vectors alone, expected vectors of length 1" in capsys.readouterr().err


def test_a_rebuild_replaces_the_index(tmp_path, kind):
    for count in (60, 80):
        passages = shard(tmp_path / f"{count}.arrow", names("d", count), unit(3, count))
        assert build(kind, tmp_path, [passages], *FEW_EDGES[kind])[0] == 0
        assert json.loads((tmp_path / "index" / "meta.json").read_text())["count"] == count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["60.arrow", "80.arrow", "index"]


@pytest.mark.parametrize(
    ("vectors", "complaint"),
    [
        (2 * unit(3, 60), "p.arrow: found a vector of length 2, expected unit vectors"),
        (unit(3, 60) * np.nan, "p.arrow: found a vector of length nan, expected unit vectors"),
        (unit(3, 0), "p.arrow: found no passage, expected at least one"),
    ],
)
def test_what_no_index_can_be_built_of_is_refused(tmp_path, capsys, vectors, complaint):
    for kind in GRAPHS:
        status, output = build(kind, tmp_path, [shard(tmp_path / "p.arrow", names("d", len(vectors)), vectors)])
        assert status == 1
        assert complaint in capsys.readouterr().err
        assert not output.exists()
        assert [path.name for path in tmp_path.iterdir()] == ["p.arrow"]


def test_queries_that_do_not_fit_are_refused(built, tmp_path, capsys):
    kind, folder = built
    other = shard(tmp_path / "model.arrow", ["q"], unit(2, 1), model="n")
    wide = shard(tmp_path / "wide.arrow", ["q"], np.eye(1, 20, dtype=np.float32))
    long = shard(tmp_path / "long.arrow", ["q"], 3 * unit(2, 1))
    for queries, complaint in (
        (other, "model.arrow: found embeddings of model n, expected model m"),
        (wide, f"wide.arrow: found 20 dimensions, expected 16 as in {folder}/index"),
        (long, "long.arrow: found a vector of length 3, expected unit vectors"),
    ):
        status, output = search(kind, tmp_path, queries, folder / "index")
        assert status == 1
        assert complaint in capsys.readouterr().err
        assert not output.parent.exists()


def change_meta(**changes):
    """Give a function that changes meta.json of an index; None drops a key."""

    def change(folder, kind):
        meta = json.loads((folder / "meta.json").read_text()) | changes
        (folder / "meta.json").write_text(json.dumps({key: value for key, value in meta.items() if value is not None}))

    return change


def shorten(folder, kind):
    path = folder / GRAPHS[kind].files[0]
    path.write_bytes(path.read_bytes()[:-1])


def shorten_unnoticed(folder, kind):
    """Shorten a file, and change its recorded size."""
    shorten(folder, kind)
    sizes = json.loads((folder / "meta.json").read_text())["bytes"]
    sizes[GRAPHS[kind].files[0]] -= 1
    change_meta(bytes=sizes)(folder, kind)


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (shorten, "damaged/{file}: found"),
        (lambda folder, kind: (folder / "ids.arrow").unlink(), "damaged/ids.arrow: found no such file"),
        (lambda folder, kind: (folder / GRAPHS[kind].files[-1]).unlink(), "{last}: found no such file"),
        (change_meta(count=399), "found 400 ids and 400 vectors, expected 399 of each"),
        (change_meta(surprise=3), "damaged/meta.json: found the fields "),
        (lambda folder, kind: (folder / "meta.json").write_text("{"), "damaged/meta.json: found unreadable"),
        (lambda folder, kind: (folder / "meta.json").unlink(), "No such file"),
    ],
)
def test_damaged_indexes_are_refused(built, tmp_path, capsys, damage, complaint):
    kind, folder = built
    damage(copy(folder, tmp_path / "damaged"), kind)
    status, output = search(kind, tmp_path, folder / "q.arrow", tmp_path / "damaged")
    assert status == 1
    assert not output.exists()
    files = GRAPHS[kind].files
    assert complaint.format(file=files[0], last=files[-1]) in capsys.readouterr().err


def test_an_index_that_its_library_cannot_read_is_refused(tmp_path, capsys):
    passages = shard(tmp_path / "p.arrow", names("d", 60), unit(3, 60))
    assert build("hnsw", tmp_path, [passages])[0] == 0
    shorten_unnoticed(copy(tmp_path, tmp_path / "cut"), "hnsw")
    assert search("hnsw", tmp_path, passages, tmp_path / "cut")[0] == 1
    assert "cut/graph.hnsw: found an index that cannot be read" in capsys.readouterr().err


def test_an_index_of_the_other_kind_is_refused(built, tmp_path, capsys):
    kind, folder = built
    (other,) = GRAPHS.keys() - {kind}
    assert search(other, tmp_path, folder / "q.arrow", folder / "index")[0] == 1
    assert "index/meta.json: found the fields " in capsys.readouterr().err


@pytest.mark.parametrize(
    ("kind", "more", "complaint"),
    [
        ("hnsw", ("--width", "20.5"), "--width: found ef 20.5, expected a whole number from 1"),
        ("hnsw", ("--depth", "20", "--width", "19"), "--width: found ef 19, expected 20 (the depth) or more"),
        ("onng", ("--width", "-1"), "--width: found epsilon -1, expected a number above -1"),
    ],
)
def test_bad_options_of_a_search_are_refused(tmp_path, capsys, kind, more, complaint):
    passages = shard(tmp_path / "p.arrow", names("d", 30), unit(3, 30))
    assert build(kind, tmp_path, [passages], *FEW_EDGES[kind])[0] == 0
    assert search(kind, tmp_path, passages, tmp_path / "index", *more)[0] == 1
    assert complaint in capsys.readouterr().err


def test_without_hnswlib_one_line_says_what_to_install(tmp_path, capsys, monkeypatch):
    passages = shard(tmp_path / "p.arrow", names("d", 30), unit(3, 30))
    assert build("hnsw", tmp_path, [passages])[0] == 0
    real = builtins.__import__

    def without(name, *more):
        if name == "hnswlib":
            raise ImportError(name)
        return real(name, *more)

    monkeypatch.setattr(builtins, "__import__", without)
    complaint = "hnswlib: found no such package, expected hnswlib 0.8.0"
    assert build("hnsw", tmp_path / "new", [passages])[0] == 1
    assert complaint in capsys.readouterr().err
    assert search("hnsw", tmp_path, passages, tmp_path / "index")[0] == 1
    assert complaint in capsys.readouterr().err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "p.arrow"]


def test_no_queries_give_an_empty_run(built, tmp_path):
    kind, folder = built
    status, output = search(kind, tmp_path, shard(tmp_path / "none.arrow", [], unit(2, 0)), folder / "index")
    assert status == 0
    assert output.read_bytes() == b""


KILLED = """
import sys
from cort import index
index.LINKED_AT_ONCE = 200
sys.exit(index.main(sys.argv[1:]))
"""


def start(folder, passages):
    options = ["onng", "--passages", passages, "--edges", 40, "--threads", 1, "--output", folder / "index"]
    options += ["--checkpoints", folder / "kept", "--checkpoint-every", 0, "--log", folder / "log"]
    return Python("-c", KILLED, *options, stderr=subprocess.DEVNULL)


def linked(folder):
    try:
        return json.loads((folder / "kept" / "progress.json").read_text())["linked"]
    except FileNotFoundError:
        return 0


def test_a_killed_build_resumes_to_the_same_bytes(tmp_path):
    passages = shard(tmp_path / "p.arrow", names("d", 4_000), unit(1, 4_000))
    with start(tmp_path, passages) as process:
        wait_until(lambda: linked(tmp_path) >= 800 or process.poll() is not None, pause=0.01)
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    before = linked(tmp_path)
    assert 800 <= before < 4_000
    assert start(tmp_path, passages).wait() == 0
    assert int(re.search(r"resumes after (\d+) vectors", (tmp_path / "log").read_text())[1]) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "log", "p.arrow"]
    status, output = build("onng", tmp_path / "whole", [passages], "--edges", "40")
    assert status == 0
    assert same_files(tmp_path / "index", output)


def keep_some(folder, passages, monkeypatch):
    """Build until a checkpoint is written, and fail then."""
    keep = index.Checkpoint.keep

    def keep_and_fail(checkpoint, work, count):
        keep(checkpoint, work, count)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(index, "LINKED_AT_ONCE", 200)
        patch.setattr(index.Checkpoint, "keep", keep_and_fail)
        options = ("--edges", "20", "--checkpoints", str(folder / "kept"), "--checkpoint-every", "0")
        assert build("onng", folder, [passages], *options)[0] == 1
    assert not (folder / "index").exists()
    assert linked(folder) == 200


@pytest.mark.parametrize("change", ["other vectors", "other edges", "damaged", "cut", "gone"])
def test_checkpoints_of_another_build_and_damaged_ones_are_not_used(tmp_path, monkeypatch, caplog, change):
    passages, edges = shard(tmp_path / "p.arrow", names("d", 600), unit(1, 600)), "20"
    keep_some(tmp_path, passages, monkeypatch)
    if change == "other vectors":
        passages = shard(tmp_path / "p.arrow", names("d", 600), unit(2, 600))
    elif change == "other edges":
        edges = "30"
    elif change == "damaged":
        (tmp_path / "kept" / "progress.json").write_text("{")
    elif change == "cut":
        (tmp_path / "kept" / "grp").write_bytes((tmp_path / "kept" / "grp").read_bytes()[:-1])
    else:
        (tmp_path / "kept" / "obj").unlink()
    caplog.clear()
    options = ("--edges", edges, "--checkpoints", str(tmp_path / "kept"))
    assert build("onng", tmp_path, [passages], *options)[0] == 0
    assert "resumes after" not in caplog.text
    assert not (tmp_path / "kept").exists()
    _, output = build("onng", tmp_path / "whole", [passages], "--edges", edges)
    assert same_files(tmp_path / "index", output)

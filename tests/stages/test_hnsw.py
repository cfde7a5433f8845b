import builtins
import json

import numpy as np
import pytest

from cort import hnsw, onng, retrieve, retrieve_graph
from cort.formats.artifacts import write_artifact
from cort.formats.runs import read_run
from cort.retrieval import graph_search
from cort.retrieval.audits import Audit, Milliseconds, Search
from cort.retrieval.graph_search import open_index
from tests.support.vectors import DIMENSION, copy, names, shard, unit, write_world


def build(folder, passages, *more):
    output = folder / "index"
    return hnsw.main(["--passages", *passages, "--output", str(output), *more]), output


def search(folder, queries, index, *more, name="run.trec"):
    output = folder / "runs" / name
    options = ["--kind", "hnsw", "--queries", queries, "--index", str(index), "--tag", "t", "--output", str(output)]
    return retrieve_graph.main([*options, *more]), output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hnsw")
    assert build(folder, write_world(folder))[0] == 0
    return folder


def test_the_folder_says_what_it_is(folder):
    meta = json.loads((folder / "index" / "meta.json").read_text())
    sizes = meta.pop("bytes")
    assert meta == {
        "model": "m",
        "count": 400,
        "dimension": DIMENSION,
        "M": 16,
        "ef_construction": 200,
        "space": "ip",
    }
    files = {path.name: path.stat().st_size for path in (folder / "index").glob("[!.]*")}
    assert files.pop("meta.json") > 0
    assert sizes == files


def test_shards_and_repetition_change_no_byte(folder, tmp_path, monkeypatch):
    for passages in ([folder / "all.arrow"], [folder / "p1.arrow", folder / "p2.arrow"]):
        # Blocks that end within shards, and within the blocks of shards.
        monkeypatch.setattr(hnsw, "ADDED_AT_ONCE", 37)
        assert build(tmp_path, map(str, passages))[0] == 0
        for name in ("graph.hnsw", "ids.arrow", "meta.json"):
            assert (tmp_path / "index" / name).read_bytes() == (folder / "index" / name).read_bytes()


def test_a_wide_search_is_exact_and_its_scores_are_those_of_exact_retrieval(folder):
    queries = str(folder / "q.arrow")
    status, output = search(folder, queries, folder / "index", "--width", "400", "--depth", "50", name="wide.trec")
    assert status == 0
    exact = folder / "runs" / "exact.trec"
    options = ["--queries", queries, "--passages", str(folder / "all.arrow"), "--depth", "50", "--device", "cpu"]
    assert retrieve.main([*options, "--tag", "t", "--output", str(exact)]) == 0
    expected, found = read_run(exact), read_run(output)
    assert found.query_ids == expected.query_ids
    for best, some in zip(expected, found, strict=True):
        assert len(set(best.doc_ids) & set(some.doc_ids)) >= 49
        scores = dict(zip(best.doc_ids, best.scores, strict=True))
        both = [(scores[doc], one) for doc, one in zip(some.doc_ids, some.scores, strict=True) if doc in scores]
        assert np.abs(np.subtract(*zip(*both, strict=True))).max() < 1e-6


def test_search_finds_what_brute_force_finds(folder):
    vectors, queries = unit(1, 400), unit(2, 70)
    vectors[300:] = vectors[:100]
    index = open_index("hnsw", folder / "index")
    for query in queries:
        found = index.search(query, 400, 10)
        products = vectors.astype(np.float64) @ query.astype(np.float64)
        assert np.allclose(found.scores, np.sort(products)[::-1][:10], atol=1e-6)
        assert np.allclose(products[found.rows], found.scores, atol=1e-6)


def test_equal_vectors_are_ordered_by_doc_id(folder):
    _, output = search(folder, str(folder / "q.arrow"), folder / "index", "--width", "400", "--depth", "400")
    for ranking in read_run(output):
        place = {doc_id: rank for rank, doc_id in enumerate(ranking.doc_ids)}
        for number in range(100):
            first, second = sorted((f"d{number}", f"d{number + 300}"))
            if {first, second} <= set(place):
                assert place[first] < place[second]


def test_threads_and_blocks_change_no_byte(folder, monkeypatch):
    results = []
    for threads, block in (("1", 1_024), ("2", 1_024), ("2", 7)):
        monkeypatch.setattr(graph_search, "QUERIES_PER_BLOCK", block)
        options = ("--threads", threads, "--depth", "20", "--width", "20")
        status, output = search(folder, str(folder / "q.arrow"), folder / "index", *options)
        assert status == 0
        results.append(output.read_bytes())
    assert results[0] == results[1] == results[2]


def test_a_graph_in_parts_gives_what_it_leads_to(tmp_path):
    """Copies of one vector fill the edges of their nodes, and nothing leads to the others."""
    vectors = np.concatenate([np.repeat(unit(7, 1), 200, axis=0), np.repeat(unit(8, 1), 200, axis=0)])
    passages = shard(tmp_path / "p.arrow", names("d", 400), vectors)
    assert build(tmp_path, [passages], "--M", "2", "--ef-construction", "2")[0] == 0
    queries = shard(tmp_path / "q.arrow", ["q"], unit(7, 1))
    index = open_index("hnsw", tmp_path / "index")
    with pytest.raises(RuntimeError):
        index.index.set_ef(400)
        index.index.knn_query(unit(7, 1), k=400)
    status, output = search(tmp_path, queries, tmp_path / "index", "--width", "400", "--depth", "400")
    (ranking,) = read_run(output)
    assert status == 0
    assert 1 <= len(ranking.doc_ids) < 400
    assert len(set(ranking.doc_ids)) == len(ranking.doc_ids)
    # All that it leads to: one more is refused.
    found = len(ranking.doc_ids)
    assert len(index.index.knn_query(unit(7, 1), k=found)[0][0]) == found
    with pytest.raises(RuntimeError):
        index.index.knn_query(unit(7, 1), k=found + 1)


def test_more_results_than_passages_give_all(folder):
    status, output = search(folder, str(folder / "q.arrow"), folder / "index", "--width", "1000", "--depth", "1000")
    assert status == 0
    assert {len(ranking.doc_ids) for ranking in read_run(output)} == {400}


def test_half_precision_vectors(tmp_path):
    vectors = unit(5, 120).astype(np.float16)
    passages = shard(tmp_path / "p.arrow", names("d", 120), vectors, storage="fp16")
    assert build(tmp_path, [passages])[0] == 0
    status, output = search(tmp_path, passages, tmp_path / "index", "--depth", "1", "--width", "100")
    assert status == 0
    run = read_run(output)
    assert [ranking.doc_ids[0] for ranking in run] == run.query_ids


@pytest.mark.parametrize(
    ("vectors", "more", "complaint"),
    [
        (2 * unit(3, 60), (), "p.arrow: found a vector of length 2, expected unit vectors; use exact retrieval"),
        (unit(3, 60) * np.nan, (), "p.arrow: found a vector of length nan, expected unit vectors"),
        (unit(3, 0), (), "p.arrow: found no passage, expected at least one"),
        (unit(3, 60), ("--M", "1"), "--M: found 1, expected 2 to 1000"),
        (unit(3, 60), ("--ef-construction", "0"), "--ef-construction: found 0, expected 1 or more"),
    ],
)
def test_bad_passages_are_refused(tmp_path, capsys, vectors, more, complaint):
    status, output = build(tmp_path, [shard(tmp_path / "p.arrow", names("d", len(vectors)), vectors)], *more)
    assert status == 1
    assert complaint in capsys.readouterr().err
    assert not output.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["p.arrow"]


def test_queries_that_do_not_fit_are_refused(folder, tmp_path, capsys):
    other = shard(tmp_path / "model.arrow", ["q"], unit(2, 1), model="n")
    wide = shard(tmp_path / "wide.arrow", ["q"], np.eye(1, 20, dtype=np.float32))
    long = shard(tmp_path / "long.arrow", ["q"], 3 * unit(2, 1))
    for queries, complaint in (
        (other, "model.arrow: found embeddings of model n, expected model m"),
        (wide, f"wide.arrow: found 20 dimensions, expected 16 as in {folder}/index"),
        (long, "long.arrow: found a vector of length 3, expected unit vectors"),
    ):
        status, output = search(tmp_path, queries, folder / "index")
        assert status == 1
        assert complaint in capsys.readouterr().err
        assert not output.parent.exists()


def test_damaged_indexes_are_refused(folder, tmp_path, capsys):
    def damage(name, change):
        index = copy(folder, tmp_path / name)
        change(index)
        status, output = search(tmp_path, str(folder / "q.arrow"), index)
        assert status == 1
        assert not output.exists()
        return capsys.readouterr().err

    def shorten(index):
        (index / "graph.hnsw").write_bytes((index / "graph.hnsw").read_bytes()[:-1])

    def cut_but_counted(index):
        shorten(index)
        meta = json.loads((index / "meta.json").read_text())
        meta["bytes"]["graph.hnsw"] -= 1
        (index / "meta.json").write_text(json.dumps(meta))

    def miscount(index):
        meta = json.loads((index / "meta.json").read_text()) | {"count": 399}
        (index / "meta.json").write_text(json.dumps(meta))

    def confuse(index):
        meta = json.loads((index / "meta.json").read_text()) | {"edges": 3}
        (index / "meta.json").write_text(json.dumps(meta))

    assert "short/graph.hnsw: found" in damage("short", shorten)
    assert "cut/graph.hnsw: found an index that cannot be read" in damage("cut", cut_but_counted)
    assert "gone/ids.arrow: found no such file" in damage("gone", lambda index: (index / "ids.arrow").unlink())
    assert "found 400 ids and 400 vectors, expected 399 of each" in damage("miscount", miscount)
    assert "confuse/meta.json: found the fields " in damage("confuse", confuse)
    assert "garbage/meta.json: found unreadable" in damage(
        "garbage", lambda index: (index / "meta.json").write_text("{")
    )


def test_an_index_of_the_other_kind_is_refused(folder, tmp_path, capsys):
    passages = shard(tmp_path / "p.arrow", names("d", 60), unit(3, 60))
    output = str(tmp_path / "onng")
    assert onng.main(["--passages", passages, "--edges", "10", "--output", output]) == 0
    assert search(tmp_path, str(folder / "q.arrow"), output)[0] == 1
    assert "onng/meta.json: found the fields " in capsys.readouterr().err


def test_bad_options_are_refused(folder, tmp_path, capsys):
    for more, complaint in (
        (("--depth", "0"), "--depth: found 0, expected 1 or more"),
        (("--width", "20.5"), "--width: found ef 20.5, expected a whole number from 1"),
        (
            ("--depth", "20", "--width", "19"),
            "--width: found ef 19, expected 20 (the depth) or more; raise it or lower the depth",
        ),
    ):
        assert search(tmp_path, str(folder / "q.arrow"), folder / "index", *more)[0] == 1
        assert complaint in capsys.readouterr().err


def test_without_the_library_one_line_says_what_to_install(folder, tmp_path, capsys, monkeypatch):
    real = builtins.__import__

    def without(name, *rest):
        if name == "hnswlib":
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    complaint = "hnswlib: found no such package, expected hnswlib 0.8.0; install g++ and the headers of Python"
    assert build(tmp_path, [str(folder / "all.arrow")])[0] == 1
    assert complaint in capsys.readouterr().err
    assert search(tmp_path, str(folder / "q.arrow"), folder / "index")[0] == 1
    assert complaint in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_audit_chooses_the_smallest_ef_that_is_enough(folder, tmp_path):
    times = Milliseconds(1.0, 1.0)
    recalls = {(20, 20): 0.9, (50, 20): 0.95, (80, 20): 0.99, (20, 10): 1.0}
    searches = [Search(depth, {}, times, recall, ef) for (ef, depth), recall in recalls.items()]
    write_artifact(tmp_path / "a.json", Audit("e", [], "hnsw", "m", "ef", 400, 70, searches, "dev"))
    chosen = ("--audit", str(tmp_path / "a.json"), "--recall", "0.95")
    queries, index, depth = str(folder / "q.arrow"), folder / "index", ("--depth", "20")
    _, found = search(folder, queries, index, *chosen, *depth)
    _, same = search(folder, queries, index, "--width", "50", *depth, name="50.trec")
    _, other = search(folder, queries, index, "--width", "20", *depth, name="20.trec")
    assert found.read_bytes() == same.read_bytes() != other.read_bytes()


def test_no_results_for_no_queries(folder, tmp_path):
    none = shard(tmp_path / "none.arrow", [], unit(2, 0))
    status, output = search(tmp_path, none, folder / "index")
    assert status == 0
    assert output.read_bytes() == b""

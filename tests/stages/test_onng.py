import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cort import onng, retrieve, retrieve_graph
from cort.formats.runs import read_run
from tests.support.vectors import DIMENSION, copy, names, shard, unit, write_world

ROOT = Path(__file__).parents[2]


def build(folder, passages, *more):
    output = folder / "index"
    return onng.main(["--passages", *passages, "--threads", "2", "--output", str(output), *more]), output


def search(folder, queries, index, *more, name="run.trec"):
    output = folder / "runs" / name
    options = ["--kind", "onng", "--queries", queries, "--index", str(index), "--tag", "t", "--output", str(output)]
    return retrieve_graph.main([*options, *more]), output


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("onng")
    assert build(folder, write_world(folder))[0] == 0
    return folder


def test_the_folder_says_what_it_is(folder):
    meta = json.loads((folder / "index" / "meta.json").read_text())
    sizes = meta.pop("bytes")
    assert meta == {
        "model": "m",
        "count": 400,
        "dimension": DIMENSION,
        "edges": 100,
        "outgoing": 10,
        "incoming": 120,
        "distance": "Normalized L2",
    }
    files = {path.name: path.stat().st_size for path in (folder / "index").glob("[!.]*")}
    assert set(files) == {"grp", "obj", "prf", "robj", "tre", "ids.arrow", "meta.json"}
    assert sizes == {name: size for name, size in files.items() if name != "meta.json"}


def test_shards_and_threads_change_no_byte(folder, tmp_path):
    status, output = build(tmp_path, [str(folder / "all.arrow")], "--threads", "1")
    assert status == 0
    for name in (*onng.INDEX_FILES, "meta.json"):
        assert (output / name).read_bytes() == (folder / "index" / name).read_bytes()


def test_finds_what_exact_retrieval_finds_at_a_generous_epsilon(folder):
    queries = str(folder / "q.arrow")
    status, output = search(folder, queries, folder / "index", "--width", "0.8", "--depth", "50")
    assert status == 0
    exact = folder / "runs" / "exact.trec"
    options = ["--queries", queries, "--passages", str(folder / "all.arrow"), "--depth", "50", "--device", "cpu"]
    assert retrieve.main([*options, "--tag", "t", "--output", str(exact)]) == 0
    expected, found = read_run(exact), read_run(output)
    assert found.query_ids == expected.query_ids
    shared = sum(len({*a.doc_ids} & {*b.doc_ids}) for a, b in zip(expected, found, strict=True))
    assert shared / len(expected.doc_ids) > 0.995
    truth = {(r.query_id, d): s for r in expected for d, s in zip(r.doc_ids, r.scores, strict=True)}
    both = [(s, truth[r.query_id, d]) for r in found for d, s in zip(r.doc_ids, r.scores, strict=True)
            if (r.query_id, d) in truth]  # fmt: skip
    assert np.abs(np.subtract(*zip(*both, strict=True))).max() < 1e-6


def test_equal_vectors_are_ordered_by_doc_id(folder):
    _, output = search(folder, str(folder / "q.arrow"), folder / "index", "--width", "0.8", "--depth", "400")
    for ranking in read_run(output):
        place = {doc_id: rank for rank, doc_id in enumerate(ranking.doc_ids)}
        for number in range(100):
            first, second = sorted((f"d{number}", f"d{number + 300}"))
            if {first, second} <= set(place):
                assert place[first] < place[second]


def test_processes_and_repetition_change_no_byte(folder):
    results = []
    for threads in ("1", "2", "1"):
        status, output = search(
            folder, str(folder / "q.arrow"), folder / "index", "--threads", threads, "--depth", "20"
        )
        assert status == 0
        results.append(output.read_bytes())
    assert results[0] == results[1] == results[2]


def test_a_larger_epsilon_finds_more(folder):
    vectors, queries = unit(1, 400)[:300], unit(2, 70)
    truth = np.argsort(-(queries @ vectors.T), axis=1)[:, 0]
    hits = []
    for epsilon in ("-0.9", "0.5"):
        _, output = search(folder, str(folder / "q.arrow"), folder / "index", "--width", epsilon, "--depth", "2")
        found = read_run(output).by_query()
        hits.append(sum(f"d{truth[number]}" in found[f"q{number}"] for number in range(70)))
    assert hits[0] < hits[1] == 70


def test_half_precision_vectors(tmp_path):
    vectors = unit(5, 120).astype(np.float16)
    passages = shard(tmp_path / "p.arrow", names("d", 120), vectors, storage="fp16")
    assert build(tmp_path, [passages])[0] == 0
    status, output = search(tmp_path, passages, tmp_path / "index", "--depth", "1", "--width", "0.5")
    assert status == 0
    run = read_run(output)
    assert [ranking.doc_ids[0] for ranking in run] == run.query_ids


def test_a_rebuild_replaces_the_index(tmp_path):
    for count in (60, 80):
        passages = shard(tmp_path / f"{count}.arrow", names("d", count), unit(3, count))
        assert build(tmp_path, [passages], "--edges", "20")[0] == 0
        assert json.loads((tmp_path / "index" / "meta.json").read_text())["count"] == count
    assert sorted(path.name for path in tmp_path.iterdir()) == ["60.arrow", "80.arrow", "index"]


@pytest.mark.parametrize(
    ("vectors", "more", "complaint"),
    [
        (2 * unit(3, 60), (), "p.arrow: found a vector of length 2, expected unit vectors; use exact retrieval"),
        (unit(3, 60) * np.nan, (), "p.arrow: found a vector of length nan, expected unit vectors"),
        (unit(3, 0), (), "p.arrow: found no passage, expected at least one"),
        (unit(3, 60), ("--edges", "0"), "--edges: found 0, expected 1 or more"),
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
        (index / "grp").write_bytes((index / "grp").read_bytes()[:-1])

    def forget(index):
        meta = json.loads((index / "meta.json").read_text())
        del meta["model"]
        (index / "meta.json").write_text(json.dumps(meta))

    def miscount(index):
        meta = json.loads((index / "meta.json").read_text()) | {"count": 399}
        (index / "meta.json").write_text(json.dumps(meta))

    assert "short/grp: found" in damage("short", shorten)
    assert "gone/obj: found no such file" in damage("gone", lambda index: (index / "obj").unlink())
    assert "forgot/meta.json: found the fields " in damage("forgot", forget)
    assert "garbage/meta.json" in damage("garbage", lambda index: (index / "meta.json").write_text("{"))
    assert "found 400 ids and 400 vectors, expected 399 of each" in damage("miscount", miscount)
    assert "No such file" in damage("bare", lambda index: (index / "meta.json").unlink())


def test_bad_options_are_refused(folder, tmp_path, capsys):
    for more, complaint in (
        (("--depth", "0"), "--depth: found 0, expected 1 or more"),
        (("--width", "-1"), "--width: found epsilon -1, expected a number above -1"),
    ):
        assert search(tmp_path, str(folder / "q.arrow"), folder / "index", *more)[0] == 1
        assert complaint in capsys.readouterr().err


def test_no_queries_make_an_empty_run(folder, tmp_path):
    none = shard(tmp_path / "none.arrow", [], unit(2, 0))
    status, output = search(tmp_path, none, folder / "index")
    assert status == 0
    assert output.read_bytes() == b""


# What is kept of an unfinished graph.


KILLED = """
import sys
from cort import onng
onng.LINKED_AT_ONCE = 200
sys.exit(onng.main(sys.argv[1:]))
"""


def start(folder, passages, output):
    options = ["--passages", passages, "--edges", "40", "--threads", "1", "--output", str(output)]
    options += ["--checkpoints", str(folder / "kept"), "--checkpoint-every", "0", "--log", str(folder / "log")]
    return subprocess.Popen([sys.executable, "-c", KILLED, *options], cwd=ROOT, stderr=subprocess.DEVNULL)


def linked(folder):
    try:
        return json.loads((folder / "kept" / "progress.json").read_text())["linked"]
    except FileNotFoundError:
        return 0


def test_a_killed_build_goes_on_to_the_same_bytes(tmp_path):
    passages = shard(tmp_path / "p.arrow", names("d", 4_000), unit(1, 4_000))
    process = start(tmp_path, passages, tmp_path / "index")
    try:
        while linked(tmp_path) < 800 and process.poll() is None:
            time.sleep(0.01)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "index").exists()
    before = linked(tmp_path)
    assert 800 <= before < 4_000
    assert start(tmp_path, passages, tmp_path / "index").wait() == 0
    log = (tmp_path / "log").read_text()
    assert int(re.search(r"goes on after (\d+) vectors", log)[1]) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["index", "log", "p.arrow"]
    assert build(tmp_path / "whole", [passages], "--edges", "40")[0] == 0
    for name in (*onng.INDEX_FILES, "ids.arrow", "meta.json"):
        assert (tmp_path / "index" / name).read_bytes() == (tmp_path / "whole" / "index" / name).read_bytes()


def keep_some(folder, passages, monkeypatch, *more):
    """Build until a part is kept, and fail then."""
    keep = onng.Checkpoint.keep

    def keep_and_fail(checkpoint, work, count):
        keep(checkpoint, work, count)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(onng, "LINKED_AT_ONCE", 200)
        patch.setattr(onng.Checkpoint, "keep", keep_and_fail)
        options = ("--edges", "20", "--checkpoints", str(folder / "kept"), "--checkpoint-every", "0", *more)
        assert build(folder, [passages], *options)[0] == 1
    assert not (folder / "index").exists()
    assert linked(folder) == 200


@pytest.mark.parametrize("change", ["other vectors", "other edges", "damaged", "cut", "gone"])
def test_what_is_kept_of_another_build_or_damaged_is_not_used(tmp_path, monkeypatch, caplog, change):
    passages = shard(tmp_path / "p.arrow", names("d", 600), unit(1, 600))
    keep_some(tmp_path, passages, monkeypatch)
    edges = "20"
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
    assert build(tmp_path, [passages], *options)[0] == 0
    assert "goes on after" not in caplog.text
    assert not (tmp_path / "kept").exists()
    assert build(tmp_path / "whole", [passages], "--edges", edges)[0] == 0
    for name in onng.INDEX_FILES:
        assert (tmp_path / "index" / name).read_bytes() == (tmp_path / "whole" / "index" / name).read_bytes()

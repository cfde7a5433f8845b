"""Retrieval by late interaction from an IVF-PQ index, its audit, and what both refuse."""

import itertools
import json

import numpy as np
import pytest
import torch

from cort import audit_tokens, encode_tokens, ivfpq, retrieve_ivfpq, retrieve_tokens
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.runs import read_run
from cort.online.manifest import read_manifest
from cort.online.neural import open_models
from cort.reporting.audits import audit_blocks
from cort.retrieval.audits import Audit
from tests.conftest import without_record

pytest.importorskip("faiss")

LATE = {"kind": "late_interaction", "dimension": 6, "similarity": "l2"}
LISTS = 16


@pytest.fixture(autouse=True)
def one_thread():
    yield
    torch.set_num_threads(1)


@pytest.fixture(scope="module")
def model(make_reranker):
    return make_reranker(**LATE)


def encode(model, caches, folder):
    path = folder / "p.arrow"
    arguments = ["--model", model, "--tokens", caches["passages"], "--output", path]
    assert encode_tokens.main([str(word) for word in arguments]) == 0
    return without_record(path)


def index_of(passages, output):
    arguments = ["--passages", passages, "--lists", LISTS, "--bytes", 3, "--output", output]
    assert ivfpq.main([str(word) for word in arguments]) == 0
    return without_record(output)


@pytest.fixture(scope="module")
def folder(model, caches, tmp_path_factory):
    folder = tmp_path_factory.mktemp("ivfpq")
    index_of(encode(model, caches, folder), folder / "index")
    (path.unlink() for path in folder.glob(".*.sum"))
    return folder


def words_of(named):
    values = ((f"--{name}", *(value if isinstance(value, list) else [value])) for name, value in named.items())
    return [str(word) for word in itertools.chain(*values)]


def options(model, caches, folder, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": [folder / "p.arrow"], "depth": 20}
    return words_of({**named, "index": folder / "index", "tag": "t", "output": output, **changes})


def exact(model, caches, folder, output):
    named = {"model": model, "queries": caches["queries.train"], "passages": [folder / "p.arrow"], "depth": 20}
    assert retrieve_tokens.main(words_of({**named, "tag": "t", "output": output})) == 0
    return output


def test_a_search_of_everything_writes_the_run_of_exact_search(model, caches, folder, tmp_path):
    wanted = exact(model, caches, folder, tmp_path / "exact.trec").read_bytes()
    for threads in (1, 3):
        everything = {"width": LISTS, "candidates": 10**6, "threads": threads}
        output = tmp_path / f"{threads}.trec"
        assert retrieve_ivfpq.main(options(model, caches, folder, output, **everything)) == 0
        assert output.read_bytes() == wanted


def test_a_narrow_search_finds_some_with_their_scores(model, caches, folder, tmp_path):
    best = read_run(exact(model, caches, folder, tmp_path / "exact.trec"))
    output = tmp_path / "run.trec"
    assert retrieve_ivfpq.main(options(model, caches, folder, output, width=1, candidates=8)) == 0
    missed = 0
    for found, wanted in zip(read_run(output), best, strict=True):
        scores = dict(zip(wanted.doc_ids, wanted.scores, strict=True))
        shared = [(score, scores[name]) for name, score in zip(*found[1:], strict=True) if name in scores]
        # A run's scores are told apart where they are equal.
        assert all(score == pytest.approx(other, abs=1e-4) for score, other in shared)
        missed += len(wanted.doc_ids) - len(shared)
    assert missed


def audited(model, caches, world, folder, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": [folder / "p.arrow"]}
    named |= {"index": folder / "index", "qrels": world.path("qrels.parquet"), "widths": [1, 2, LISTS]}
    named |= {"candidates": 30, "depths": [5, 20], "measures": ["RR@10"], "encoder": "late", "split": "dev"}
    return words_of({**named, "threads": 1, "output": output, **changes})


def test_recall_is_that_of_the_runs(model, caches, world, folder, tmp_path):
    output = tmp_path / "audit.json"
    assert audit_tokens.main(audited(model, caches, world, folder, output)) == 0
    found = read_artifact(output, Audit)
    best = read_run(exact(model, caches, folder, tmp_path / "exact.trec"))
    for width in (1, 2, LISTS):
        run = tmp_path / f"{width}.trec"
        assert retrieve_ivfpq.main(options(model, caches, folder, run, width=width, candidates=30)) == 0
        for depth in (5, 20):
            shares = [
                len({*one.doc_ids[:depth]} & {*other.doc_ids[:depth]}) / depth
                for one, other in zip(read_run(run), best, strict=True)
            ]
            (search,) = [one for one in found.searches if (one.width, one.depth) == (width, depth)]
            assert search.recall == pytest.approx(np.mean(shares))
            assert search.milliseconds.mean > 0
    recalls = [one.recall for one in found.searches if one.depth == 20]
    assert recalls[0] < recalls[-1]
    assert (found.index, found.parameter, found.encoder, found.vectors_per_token) == ("ivfpq", "probes", "late", 30)
    assert found.storage_bytes == (folder / "index" / "lists.faiss").stat().st_size
    (block,) = audit_blocks([found])
    assert block.caption.endswith("; ivfpq: 1 MB, 30 candidates of each token")
    assert block.rows[1].name == "ivfpq, probes 1"


def test_probes_are_chosen_by_the_audit(model, caches, world, folder, tmp_path, complaint):
    audit = tmp_path / "audit.json"
    assert audit_tokens.main(audited(model, caches, world, folder, audit, candidates=10**6)) == 0
    found, output = json.loads(audit.read_text()), tmp_path / "run.trec"
    deepest = {one["width"]: one["recall"] for one in found["searches"] if one["depth"] == 20}
    assert deepest[1] < deepest[2] <= deepest[LISTS] == 1
    for recall, width in ((deepest[1], 1), (1, min(one for one in deepest if deepest[one] == 1))):
        named = {"candidates": 10**6, "audit": audit, "recall": recall}
        assert retrieve_ivfpq.main(options(model, caches, folder, output, **named)) == 0
        other = tmp_path / "other.trec"
        assert retrieve_ivfpq.main(options(model, caches, folder, other, width=width, candidates=10**6)) == 0
        assert output.read_bytes() == other.read_bytes()
    output.unlink()
    line = complaint(retrieve_ivfpq.main, options(model, caches, folder, output, audit=audit, width=2), output)
    assert line == "--width: found 2 beside --audit, expected no value, as it has no effect; leave it out"
    narrow = read_artifact(audit, Audit)
    write_artifact(audit, Audit(**{**vars(narrow), "searches": narrow.searches[:2]}))
    line = complaint(retrieve_ivfpq.main, options(model, caches, folder, output, audit=audit, recall=1), output)
    assert "add larger values to audit.probes or ask for less" in line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"width": 0}, "--width: found probes 0, expected a whole number from 1"),
        ({"width": 1.5}, "--width: found probes 1.5, expected a whole number from 1"),
        ({"candidates": 0}, "--candidates: found 0, expected 1 or more"),
        ({"depth": 0}, "--depth: found 0, expected 1 or more"),
        ({"recall": 2}, "--recall: found 2, expected more than 0, at most 1"),
    ],
)
def test_bad_options_are_refused(model, caches, folder, tmp_path, complaint, changes, line):
    output = tmp_path / "run.trec"
    assert complaint(retrieve_ivfpq.main, options(model, caches, folder, output, **changes), output).startswith(line)


def test_the_index_of_another_model_is_refused(make_reranker, caches, world, folder, tmp_path, complaint):
    other = make_reranker(**LATE, seed=9)
    encode(other, caches, tmp_path)
    output = tmp_path / "run.trec"
    for main, words in (
        (retrieve_ivfpq.main, options(other, caches, tmp_path, output, index=folder / "index")),
        (audit_tokens.main, audited(other, caches, world, tmp_path, output, index=folder / "index")),
    ):
        line = complaint(main, words, output)
        assert line.startswith(f"{folder}/index/meta.json: found an index of model ")
        assert line.endswith(", as of the token vectors; delete the index and build it again")


def test_a_damaged_index_is_refused_by_its_checksum(model, caches, folder, tmp_path, complaint):
    arguments = ["--passages", folder / "p.arrow", "--lists", LISTS, "--bytes", 3, "--output", tmp_path / "index"]
    assert ivfpq.main([str(word) for word in arguments]) == 0
    path, output = tmp_path / "index" / "lists.faiss", tmp_path / "run.trec"
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)
    line = complaint(retrieve_ivfpq.main, options(model, caches, folder, output, index=tmp_path / "index"), output)
    assert line.startswith(f"{path}: found other bytes than were written")


def test_online_the_same_is_found(model, caches, folder, world, tmp_path):
    run = tmp_path / "run.trec"
    assert retrieve_ivfpq.main(options(model, caches, folder, run, width=2, candidates=30)) == 0
    named = {"model": str(model), "cleaning": "raw", "precision": "fp32", "files": [str(folder / "p.arrow")]}
    system = {"kind": "ivfpq", "token_encoder": "late", "index": str(folder / "index"), "width": 2, "per_token": 30}
    found = {"dataset": "d", "depth": 20, "passages": world.path("passages.parquet"), "lexical": {}, "encoders": {}}
    found |= {"rerankers": {}, "token_encoders": {"late": named}, "systems": {"late": system}}
    (tmp_path / "manifest.json").write_text(json.dumps(found))
    manifest = read_manifest(tmp_path / "manifest.json")
    *_, tokens, candidates = open_models(manifest, manifest.systems, ["cpu"], 1)
    encoder, search = tokens["late"], candidates["late"]
    texts = world.query_texts[:20]
    rankings = search.search(encoder.encode(encoder.tokenize(texts)), 20)
    for one, other in zip(rankings, read_run(run), strict=True):
        assert one.scores == pytest.approx(other.scores, abs=1e-3)
        assert len({*one.doc_ids} & {*other.doc_ids}) >= len(other.doc_ids) - 1

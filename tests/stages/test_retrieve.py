import json
from functools import partial

import numpy as np
import pytest
import torch

from cort import audit, encode, index, retrieve
from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.runs import read_run
from cort.formats.shards import Tokens
from cort.models.late_interaction import load_late_interaction
from cort.models.modules import TextModel
from cort.online.neural import Model, Opening, TokenEncoder
from cort.reporting.sections import audit_blocks
from cort.retrieval.audits import Audit
from tests.conftest import without_record
from tests.support.common import command_line
from tests.support.online import results_with
from tests.support.vectors import names, random_unit, shards, without_precision

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def generator():
    return np.random.default_rng(11)


def words_of(command, named):
    return [command, *command_line(named)]


def run(folder, queries, passages, *more):
    output = folder / "out" / "run.trec"
    options = ["--queries", *queries, "--passages", *passages, "--tag", "t", "--output", str(output), *more]
    return retrieve.main(["exact", *options]), output


def test_the_same_bytes_from_every_partition_into_shards(tmp_path, generator, monkeypatch):
    vectors = random_unit(generator, 300, 48)
    vectors[100:200] = vectors[:100]
    ids = [str(number) for number in generator.permutation(300)]
    queries = shards(tmp_path, "q", names("q", 40), random_unit(generator, 40, 48))
    status, output = run(tmp_path, queries, shards(tmp_path, "p", ids, vectors), "--depth", "50")
    assert status == 0
    whole = output.read_bytes()
    assert len(read_run(output).doc_ids) == 40 * 50
    for bounds, batch, scores in [((150,), 64, 9_000), ((1, 2, 299), 7, 90), ((100, 200), 300, 33), ((0, 300), 50, 1)]:
        for name in ("products.SCORES_AT_ONCE", "products.IN_CACHE", "codes.IN_CACHE"):
            monkeypatch.setattr(f"cort.retrieval.{name}", scores)
        parts = shards(tmp_path, f"part{len(bounds)}", ids, vectors, bounds, batch)
        assert run(tmp_path, queries, parts, "--depth", "50", "--threads", "1")[0] == 0
        assert output.read_bytes() == whole


def test_queries_that_are_documents_do_not_find_themselves(tmp_path, generator):
    """As BEIR does: drop the query, and keep as many results as without it."""
    vectors = random_unit(generator, 20, 16)
    ids = names("d", 20)
    passages, queries = shards(tmp_path, "p", ids, vectors), shards(tmp_path, "q", ids, vectors)
    (tmp_path / "exclude.tsv").write_text("query_id\tdoc_id\nd3\td4\nd3\td5\n")
    own = ["--depth", "3", "--ignore-own", "True", "--exclude", str(tmp_path / "exclude.tsv")]
    status, output = run(tmp_path, queries, passages, *own)
    assert status == 0
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2)
    similarity[ids.index("d3"), [ids.index("d4"), ids.index("d5")]] = -2
    best = {name: [ids[place] for place in np.argsort(-row)[:3]] for name, row in zip(ids, similarity, strict=True)}
    assert {name: doc_ids for name, doc_ids, _ in read_run(output)} == best


def test_other_models_and_dimensions_are_refused(tmp_path, generator, capsys):
    passages = shards(tmp_path, "p", names("d", 9), random_unit(generator, 9, 8))
    other = shards(tmp_path, "other", ["q"], random_unit(generator, 1, 8), model="n")
    status, output = run(tmp_path, other, passages)
    assert status == 1
    assert f"{other[0]}: found embeddings of model n, expected model m" in capsys.readouterr().err
    wide = shards(tmp_path, "wide", ["q"], random_unit(generator, 1, 9))
    assert run(tmp_path, wide, passages)[0] == 1
    assert f"{wide[0]}: found embeddings of dimension 9, expected dimension 8" in capsys.readouterr().err
    assert not output.parent.exists()


@pytest.mark.parametrize("side", ["queries", "passages"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e20])
def test_nan_and_infinite_values_are_refused(tmp_path, generator, capsys, side, number):
    vectors = {"queries": random_unit(generator, 2, 8), "passages": random_unit(generator, 2, 8)}
    vectors[side][1, 3] = number
    status, output = run(tmp_path, *(shards(tmp_path, key, ["1", "2"], value) for key, value in vectors.items()))
    assert status == 1
    large = side == "passages" or number == 1e20
    values = "NaN, infinite or very large values" if large else "NaN or infinite values"
    assert f"found a vector with {values}, expected" in capsys.readouterr().err
    assert not output.exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_a_device_that_is_not_there_is_refused(tmp_path, generator, capsys):
    paths = shards(tmp_path, "p", names("d", 9), random_unit(generator, 9, 8))
    assert run(tmp_path, paths, paths, "--device", "cuda")[0] == 1
    assert "--device: found cuda, expected a CUDA device" in capsys.readouterr().err


def test_no_passages_or_no_queries(tmp_path, generator):
    some = shards(tmp_path, "some", names("d", 9), random_unit(generator, 9, 8))
    none = shards(tmp_path, "none", [], random_unit(generator, 0, 8))
    for queries, passages in ((none, some), (some, none)):
        status, output = run(tmp_path, queries, passages)
        assert status == 0
        assert output.read_bytes() == b""


@pytest.mark.skipif("not __import__('torch').cuda.is_available()", reason="no CUDA device")
def test_the_same_bytes_on_a_gpu(tmp_path, generator):
    queries = shards(tmp_path, "q", names("q", 40), random_unit(generator, 40, 48))
    passages = shards(tmp_path, "p", names("d", 3000), random_unit(generator, 3000, 48))
    results = []
    for device in ("cpu", "cuda"):
        status, output = run(tmp_path, queries, passages, "--depth", "50", "--device", device)
        assert status == 0
        results.append(output.read_bytes())
    assert results[0] == results[1]


CPU = torch.device("cpu")
LATE = {"kind": "late_interaction", "dimension": 6}
SETTINGS = [
    {},
    {"similarity": "dot", "term_weights": True},
    {"fill_queries": True},
    {"fill_queries": True, "skip_punctuation": True, "term_weights": True},
]


def encode_passages(model, caches, folder, shards=1, **changes):
    """Write the token vectors of the passages; paths of the shards."""
    paths = [folder / f"{number}-of-{shards}.arrow" for number in range(1, shards + 1)]
    for path in paths:
        named = {"model": model, "tokens": caches["passages"], "shard": path.stem, "output": path, **changes}
        assert encode.main(words_of("tokens", named)) == 0
    return paths


def by_tokens(model, caches, passages, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": passages, "depth": 30, "tag": "late"}
    return words_of("tokens", {**named, "output": output, **changes})


def scores_of_pairs(model, caches):
    """Scores of all pairs by the re-ranker, (queries, passages), and the ids of both."""
    reranker = load_late_interaction(model)
    queries, passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    pairs = reranker.pairs(queries, passages)
    rows = np.repeat(np.arange(len(queries)), len(passages)), np.tile(np.arange(len(passages)), len(queries))
    with torch.inference_mode():
        scores = pairs.score(reranker, *rows, CPU).numpy().reshape(len(queries), len(passages))
    return scores, queries.ids.to_pylist(), passages.ids.to_pylist()


@pytest.mark.parametrize("settings", SETTINGS)
def test_token_scores_are_the_rerankers_up_to_half_precision(make_reranker, caches, tmp_path, settings):
    model = make_reranker(**LATE, **settings)
    output = tmp_path / "run.trec"
    assert retrieve.main(by_tokens(model, caches, encode_passages(model, caches, tmp_path), output)) == 0
    scores, query_ids, ids = scores_of_pairs(model, caches)
    run = read_run(output)
    assert run.query_ids == query_ids
    allowed = 2e-3 * float(np.abs(scores).max())
    for row, ranking in zip(scores, run, strict=True):
        assert len(ranking.doc_ids) == min(30, len(ids))
        own = row[[ids.index(name) for name in ranking.doc_ids]]
        assert ranking.scores == pytest.approx(own, abs=allowed)
        # Nothing is left out that is better than the last.
        assert ranking.scores == pytest.approx(np.sort(row)[::-1][: len(own)], abs=allowed)


def watch_places(monkeypatch, placed):
    """Add the precision of each model that is moved to a device to `placed`."""
    place = TextModel.place
    monkeypatch.setattr(TextModel, "place", lambda *words: placed.append(words[2]) or place(*words))


@pytest.mark.parametrize(("configured", "stored"), [("auto", True), ("fp32", True), ("bf16", False), ("auto", False)])
def test_queries_get_the_precision_of_the_token_vectors(
    make_reranker, caches, tmp_path, monkeypatch, configured, stored
):
    model, output, placed = make_reranker(**LATE), tmp_path / "run.trec", []
    [path] = encode_passages(model, caches, tmp_path, precision="bf16")
    if not stored:
        without_precision(path)
    watch_places(monkeypatch, placed)
    assert retrieve.main(by_tokens(model, caches, [path], output, precision=configured)) == 0
    # Those of earlier versions are of the configured precision; it was not auto then.
    assert placed == ["bf16" if stored or configured == "bf16" else "fp32"]


def test_runs_by_tokens_do_not_depend_on_threads(make_reranker, caches, tmp_path):
    model = make_reranker(**LATE, similarity="dot", term_weights=True)
    paths, output, runs = encode_passages(model, caches, tmp_path, 2), tmp_path / "run.trec", set()
    for threads in (1, 2):
        assert retrieve.main(by_tokens(model, caches, paths, output, threads=threads)) == 0
        runs.add(output.read_bytes())
    assert len(runs) == 1


def test_token_vectors_of_another_model_are_refused(make_reranker, caches, tmp_path, complaint):
    (path,) = encode_passages(make_reranker(**LATE), caches, tmp_path)
    output, cosine = tmp_path / "run.trec", "similarity cosine, expected similarity dot"
    length = "passage length 24, expected passage length 20"
    changes = {"dimension 6, expected dimension 7": {"dimension": 7}, length: {"max_length": 20}}
    for words, change in (changes | {cosine: {"similarity": "dot"}, "model ": {"seed": 9}}).items():
        line = complaint(retrieve.main, by_tokens(make_reranker(**LATE | change), caches, [path], output), output)
        assert line.startswith(f"{path}: found token vectors of {words}")
        assert line.endswith("; delete it and encode again")


def test_bad_input_of_late_interaction_is_refused(make_reranker, caches, tmp_path, complaint):
    model, cross, output = make_reranker(**LATE), make_reranker(), tmp_path / "run.trec"
    (path,) = encode_passages(model, caches, tmp_path)

    def refused(model=model, path=path, **changes):
        return complaint(retrieve.main, by_tokens(model, caches, [path], output, **changes), output)

    assert "found CrossEncoder, a model of the kind cross-encoder, expected MultiVectorEncoder" in refused(cross)
    cache = caches["passages"]
    assert refused(path=cache).startswith(f"{cache}: found another Arrow file, expected a shard of token")
    path.write_bytes(path.read_bytes()[:-9])
    assert refused().startswith(f"{path}: found ")


LISTS = 16
EVERYTHING = {"width": LISTS, "candidates": 10**6}


@pytest.fixture(scope="module")
def model(make_reranker):
    return make_reranker(**LATE)


@pytest.fixture(scope="module")
def folder(model, caches, tmp_path_factory):
    """Folder with the passages' token vectors, p.arrow, their index, and the run of exact search."""
    folder = tmp_path_factory.mktemp("ivfpq")
    (path,) = encode_passages(model, caches, folder)
    without_record(path).rename(folder / "p.arrow")
    build(folder / "p.arrow", folder / "index")
    without_record(folder / "index")
    exact = by_tokens(model, caches, [folder / "p.arrow"], folder / "exact.trec", depth=20, tag="t")
    assert retrieve.main(exact) == 0
    return folder


def build(passages, output):
    named = {"passages": passages, "lists": LISTS, "bytes": 3, "output": output}
    assert index.main(words_of("ivfpq", named)) == 0


def by_index(model, caches, folder, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": [folder / "p.arrow"], "depth": 20}
    return words_of("ivfpq", {**named, "index": folder / "index", "tag": "t", "output": output, **changes})


def audited(model, caches, world, folder, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": [folder / "p.arrow"]}
    named |= {"index": folder / "index", "qrels": world.path("qrels.parquet"), "widths": [1, 2, LISTS]}
    named |= {"candidates": 30, "depths": [5, 20], "measures": ["RR@10"], "encoder": "late", "split": "dev"}
    return words_of("ivfpq", {**named, "threads": 1, "output": output, **changes})


def test_a_search_of_everything_writes_the_run_of_exact_search(model, caches, folder, tmp_path):
    for threads in (1, 3):
        output = tmp_path / f"{threads}.trec"
        assert retrieve.main(by_index(model, caches, folder, output, **EVERYTHING, threads=threads)) == 0
        assert output.read_bytes() == (folder / "exact.trec").read_bytes()


def test_a_narrow_search_finds_some_passages_with_their_exact_scores(model, caches, folder, tmp_path):
    output = tmp_path / "run.trec"
    assert retrieve.main(by_index(model, caches, folder, output, width=1, candidates=8)) == 0
    missed = 0
    for ranking, best in zip(read_run(output), read_run(folder / "exact.trec"), strict=True):
        scores = dict(zip(best.doc_ids, best.scores, strict=True))
        shared = [(score, scores[name]) for name, score in zip(*ranking[1:], strict=True) if name in scores]
        # A run's scores are told apart where they are equal.
        assert all(score == pytest.approx(other, abs=1e-4) for score, other in shared)
        missed += len(best.doc_ids) - len(shared)
    assert missed


def test_the_recall_of_an_audit_is_that_of_the_runs(model, caches, world, folder, tmp_path):
    output = tmp_path / "audit.json"
    assert audit.main(audited(model, caches, world, folder, output)) == 0
    found = read_artifact(output, Audit)
    exact = list(read_run(folder / "exact.trec"))
    for width in (1, 2, LISTS):
        run = tmp_path / f"{width}.trec"
        assert retrieve.main(by_index(model, caches, folder, run, width=width, candidates=30)) == 0
        for depth in (5, 20):
            both = zip(read_run(run), exact, strict=True)
            shares = [len({*own.doc_ids[:depth]} & {*best.doc_ids[:depth]}) / depth for own, best in both]
            (search,) = [one for one in found.searches if (one.width, one.depth) == (width, depth)]
            assert search.recall == pytest.approx(np.mean(shares))
            assert search.milliseconds.mean > 0
    recalls = [search.recall for search in found.searches if search.depth == 20]
    assert recalls[0] < recalls[-1]
    assert (found.index, found.parameter, found.encoder, found.vectors_per_token) == ("ivfpq", "probes", "late", 30)
    assert found.storage_bytes == (folder / "index" / "lists.faiss").stat().st_size
    (block,) = audit_blocks([found])
    assert block.caption.endswith("; ivfpq: 1 MB, 30 candidates of each vector of a query")
    assert block.rows[1].name == "ivfpq, probes 1"


def test_an_audit_encodes_queries_in_the_precision_of_the_passages(model, caches, world, folder, tmp_path, monkeypatch):
    watch_places(monkeypatch, placed := [])
    assert audit.main(audited(model, caches, world, folder, tmp_path / "audit.json", precision="bf16")) == 0
    assert placed == ["fp32"]


def test_an_audit_chooses_the_probes(model, caches, world, folder, tmp_path, complaint):
    path, output = tmp_path / "audit.json", tmp_path / "run.trec"
    assert audit.main(audited(model, caches, world, folder, path, candidates=10**6)) == 0
    found = json.loads(path.read_text())
    deepest = {search["width"]: search["recall"] for search in found["searches"] if search["depth"] == 20}
    assert deepest[1] < deepest[2] <= deepest[LISTS] == 1
    for recall, width in ((deepest[1], 1), (1, min(width for width in deepest if deepest[width] == 1))):
        named = {"candidates": 10**6, "audit": path, "recall": recall}
        assert retrieve.main(by_index(model, caches, folder, output, **named)) == 0
        other = tmp_path / "other.trec"
        assert retrieve.main(by_index(model, caches, folder, other, width=width, candidates=10**6)) == 0
        assert output.read_bytes() == other.read_bytes()
    output.unlink()
    line = complaint(retrieve.main, by_index(model, caches, folder, output, audit=path, width=2), output)
    assert line == "--width: found 2 beside --audit, expected no value, as it has no effect; leave it out"
    narrow = read_artifact(path, Audit)
    write_artifact(path, Audit(**{**vars(narrow), "searches": narrow.searches[:2]}))
    line = complaint(retrieve.main, by_index(model, caches, folder, output, audit=path, recall=1), output)
    assert "add larger values to audit.probes or ask for less" in line


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"width": 0}, "--width: found probes 0, expected a whole number from 1"),
        ({"width": 1.5}, "--width: found probes 1.5, expected a whole number from 1"),
    ],
)
def test_bad_options_of_a_search_by_ivfpq_are_refused(model, caches, folder, tmp_path, complaint, changes, line):
    output = tmp_path / "run.trec"
    assert complaint(retrieve.main, by_index(model, caches, folder, output, **changes), output).startswith(line)


def test_the_index_of_another_model_is_refused(make_reranker, caches, world, folder, tmp_path, complaint):
    other = make_reranker(**LATE, seed=9)
    (path,) = encode_passages(other, caches, tmp_path)
    output, changes = tmp_path / "run.trec", {"passages": path, "index": folder / "index"}
    for stage, words in ((retrieve, by_index), (audit, partial(audited, world=world))):
        line = complaint(stage.main, words(other, caches, folder=tmp_path, output=output, **changes), output)
        assert line.startswith(f"{folder}/index/meta.json: found an index of model ")
        assert line.endswith(", as of the vectors given; delete the index and build it again")


def test_a_damaged_index_is_refused_by_its_checksum(model, caches, folder, tmp_path, complaint):
    build(folder / "p.arrow", tmp_path / "index")
    path, output = tmp_path / "index" / "lists.faiss", tmp_path / "run.trec"
    raw = bytearray(path.read_bytes())
    raw[-100] ^= 1
    path.write_bytes(raw)
    line = complaint(retrieve.main, by_index(model, caches, folder, output, index=tmp_path / "index"), output)
    assert line.startswith(f"{path}: found changed content")


def test_a_search_online_finds_the_same(model, caches, folder, world, tmp_path):
    run = tmp_path / "run.trec"
    assert retrieve.main(by_index(model, caches, folder, run, width=2, candidates=30)) == 0
    opening = Opening(results_with(tmp_path), ["cpu"], 1, {})
    opening._token_encoder = lambda name: TokenEncoder(
        Model(model, "raw", "fp32", [folder / "p.arrow"]), opening._device
    )
    encoder, search = opening.ivfpq("late", folder / "index", lambda fingerprint: 2, 30)
    rankings = search.search(encoder.encode(encoder.tokenize(world.query_texts[:20])), 20)
    for online, ranking in zip(rankings, read_run(run), strict=True):
        assert online.scores == pytest.approx(ranking.scores, abs=1e-3)
        assert len({*online.doc_ids} & {*ranking.doc_ids}) >= len(ranking.doc_ids) - 1

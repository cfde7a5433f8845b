import numpy as np
import pytest
import torch

from cort import encode, index, retrieve
from cort.formats.artifacts import read_artifact
from cort.formats.runs import read_run
from cort.formats.shards import Tokens
from cort.models.late_interaction import load_late_interaction
from cort.models.modules import TextModel
from cort.online.neural import Model, Opening, TokenEncoder
from cort.reporting.sections import audits_table
from cort.retrieval.audits import Audit
from tests.support.common import command_line
from tests.support.online import results_with
from tests.support.vectors import names, random_unit, shards, without_precision

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def generator():
    return np.random.default_rng(11)


def exactly(folder, queries, passages):
    """Options of exact search."""
    return {"queries": queries, "passages": passages, "tag": "t", "output": folder / "out" / "run.trec"}


def test_queries_that_are_documents_do_not_find_themselves(tmp_path, generator, stage):
    """As BEIR does: drop the query, and keep as many results as without it."""
    vectors = random_unit(generator, 20, 16)
    ids = names("d", 20)
    passages, queries = shards(tmp_path, "p", ids, vectors), shards(tmp_path, "q", ids, vectors)
    (tmp_path / "exclude.tsv").write_text("query_id\tdoc_id\nd3\td4\nd3\td5\n")
    own = {"depth": 3, "ignore_own": "True", "exclude": tmp_path / "exclude.tsv"}
    output = stage("retrieve exact", **exactly(tmp_path, queries, passages), **own)
    similarity = vectors @ vectors.T
    np.fill_diagonal(similarity, -2)
    similarity[ids.index("d3"), [ids.index("d4"), ids.index("d5")]] = -2
    best = {name: [ids[place] for place in np.argsort(-row)[:3]] for name, row in zip(ids, similarity, strict=True)}
    assert {name: doc_ids for name, doc_ids, _ in read_run(output)} == best


def test_other_models_and_dimensions_are_refused(tmp_path, generator, refused):
    passages = shards(tmp_path, "p", names("d", 9), random_unit(generator, 9, 8))
    for dimension, model, found in ((8, "n", "model n, expected model m"), (9, "m", "dimension 9, expected dimension")):
        [queries] = shards(tmp_path, model, ["q"], random_unit(generator, 1, dimension), model=model)
        line = refused("retrieve exact", **exactly(tmp_path, queries, passages))
        assert line.startswith(f"{queries}: found embeddings of {found}")


@pytest.mark.parametrize("side", ["queries", "passages"])
@pytest.mark.parametrize("number", [np.nan, np.inf, 1e20])
def test_nan_and_infinite_values_are_refused(tmp_path, generator, refused, side, number):
    vectors = {"queries": random_unit(generator, 2, 8), "passages": random_unit(generator, 2, 8)}
    vectors[side][1, 3] = number
    paths = {key: shards(tmp_path, key, ["1", "2"], value) for key, value in vectors.items()}
    large = side == "passages" or number == 1e20
    values = "NaN, infinite or very large values" if large else "NaN or infinite values"
    assert f"found a vector with {values}, expected" in refused("retrieve exact", **exactly(tmp_path, **paths))


def test_no_passages_or_no_queries(tmp_path, generator, stage):
    some = shards(tmp_path, "some", names("d", 9), random_unit(generator, 9, 8))
    none = shards(tmp_path, "none", [], random_unit(generator, 0, 8))
    for queries, passages in ((none, some), (some, none)):
        assert stage("retrieve exact", **exactly(tmp_path, queries, passages)).read_bytes() == b""


CPU = torch.device("cpu")
LATE = {"kind": "late_interaction", "dimension": 6}
SETTINGS = [
    {},
    {"similarity": "dot", "term_weights": True},
    {"fill_queries": True},
    {"fill_queries": True, "skip_punctuation": True, "term_weights": True},
]


def run_stage(main, command, **options):
    """As the fixture `stage`, for fixtures of the module."""
    assert main([command, *command_line(options)]) == 0
    return options["output"]


def encode_passages(model, caches, folder, shards=1, **changes):
    """Write the token vectors of the passages; paths of the shards."""
    named = {"model": model, "tokens": caches["passages"], **changes}
    parts = [f"{number}-of-{shards}" for number in range(1, shards + 1)]
    return [run_stage(encode.main, "tokens", **named, shard=part, output=folder / f"{part}.arrow") for part in parts]


def by_tokens(model, caches, passages, output, **changes):
    named = {"model": model, "queries": caches["queries.train"], "passages": passages, "depth": 30, "tag": "t"}
    return {**named, "output": output, **changes}


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
def test_token_scores_are_the_rerankers_up_to_half_precision(make_reranker, caches, tmp_path, stage, settings):
    model = make_reranker(**LATE, **settings)
    paths = encode_passages(model, caches, tmp_path, 2)
    outputs = [
        stage("retrieve tokens", **by_tokens(model, caches, paths, tmp_path / f"{threads}.trec", threads=threads))
        for threads in (1, 2)
    ]
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
    scores, query_ids, ids = scores_of_pairs(model, caches)
    run = read_run(outputs[0])
    assert run.query_ids == query_ids
    allowed = 2e-3 * float(np.abs(scores).max())
    for row, ranking in zip(scores, run, strict=True):
        assert len(ranking.doc_ids) == min(30, len(ids))
        own = row[[ids.index(name) for name in ranking.doc_ids]]
        assert ranking.scores == pytest.approx(own, abs=allowed)
        # Nothing is left out that is better than the last.
        assert ranking.scores == pytest.approx(np.sort(row)[::-1][: len(own)], abs=allowed)


@pytest.fixture
def placed(monkeypatch):
    """The precision of each model that is moved to a device."""
    place, placed = TextModel.place, []
    monkeypatch.setattr(TextModel, "place", lambda *words: placed.append(words[2]) or place(*words))
    return placed


@pytest.mark.parametrize(("configured", "stored"), [("auto", True), ("fp32", True), ("bf16", False), ("auto", False)])
def test_queries_get_the_precision_of_the_token_vectors(
    make_reranker, caches, tmp_path, placed, stage, configured, stored
):
    model = make_reranker(**LATE)
    [path] = encode_passages(model, caches, tmp_path, precision="bf16")
    if not stored:
        without_precision(path)
    placed.clear()
    stage("retrieve tokens", **by_tokens(model, caches, path, tmp_path / "run.trec", precision=configured))
    # Those of earlier versions are of the configured precision; it was not auto then.
    assert placed == ["bf16" if stored or configured == "bf16" else "fp32"]


def test_bad_input_of_late_interaction_is_refused(make_reranker, caches, tmp_path, refused):
    (path,) = encode_passages(make_reranker(**LATE), caches, tmp_path)

    def refuse(model, path=path):
        return refused("retrieve tokens", **by_tokens(model, caches, path, tmp_path / "run.trec"))

    for change, found in (
        ({"dimension": 7}, "dimension 6, expected dimension 7"),
        ({"max_length": 20}, "passage length 24, expected passage length 20"),
        ({"similarity": "dot"}, "similarity cosine, expected similarity dot"),
        ({"seed": 9}, "model "),
    ):
        assert refuse(make_reranker(**LATE | change)).startswith(f"{path}: found token vectors of {found}")
    assert "found CrossEncoder, a model of the kind cross-encoder" in refuse(make_reranker())
    model, cache = make_reranker(**LATE), caches["passages"]
    assert refuse(model, cache).startswith(f"{cache}: found another Arrow file")
    path.write_bytes(path.read_bytes()[:-9])
    assert refuse(model).startswith(f"{path}: found ")


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
    passages = path.rename(folder / "p.arrow")
    run_stage(index.main, "ivfpq", passages=passages, lists=LISTS, bytes=3, output=folder / "index")
    run_stage(retrieve.main, "tokens", **by_tokens(model, caches, passages, folder / "exact.trec", depth=20))
    return folder


@pytest.fixture
def by_index(model, caches, folder, tmp_path):
    """Options of a search in the index; keyword arguments replace some."""
    named = by_tokens(model, caches, folder / "p.arrow", tmp_path / "run.trec", depth=20, index=folder / "index")
    return lambda **changes: named | changes


@pytest.fixture
def audited(by_index, world, tmp_path):
    """Options of an audit of the index; keyword arguments replace some."""
    named = by_index(tag=None, depth=None, qrels=world.path("qrels.parquet"), widths=[1, 2, LISTS], candidates=30)
    named |= {"depths": [5, 20], "measures": "RR@10", "encoder": "late", "split": "dev", "threads": 1}
    return lambda **changes: named | {"output": tmp_path / "audit.json"} | changes


@pytest.mark.parametrize("threads", [1, 3])
def test_a_search_of_everything_writes_the_run_of_exact_search(by_index, folder, stage, threads):
    output = stage("retrieve ivfpq", **by_index(**EVERYTHING, threads=threads))
    assert output.read_bytes() == (folder / "exact.trec").read_bytes()


def test_the_recall_of_an_audit_is_that_of_the_runs(by_index, audited, folder, stage):
    found = read_artifact(stage("audit ivfpq", **audited()), Audit)
    exact = list(read_run(folder / "exact.trec"))
    for width in (1, 2, LISTS):
        run = stage("retrieve ivfpq", **by_index(width=width, candidates=30))
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
    searches = audits_table([found]).frame
    assert [*searches["index"]][:2] == ["exact", "ivfpq"]
    assert searches["width"][1] == "probes 1"


def test_an_audit_encodes_queries_in_the_precision_of_the_passages(audited, placed, stage):
    stage("audit ivfpq", **audited(precision="bf16"))
    assert placed == ["fp32"]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({"width": 0}, "probes 0, expected an integer, above 0"),
        ({"width": 1.5}, "probes 1.5"),
        ({"width": 2, "audit": "a.json"}, "2 beside --audit"),
    ],
)
def test_a_width_that_no_search_has_or_beside_an_audit_is_refused(by_index, refused, changes, found):
    assert refused("retrieve ivfpq", **by_index(**changes)).startswith(f"--width: found {found}")


def test_a_search_online_finds_the_same(model, by_index, folder, world, tmp_path, stage):
    run = stage("retrieve ivfpq", **by_index(width=2, candidates=30))
    opening = Opening(results_with(tmp_path), ["cpu"], 1, {})
    opening._token_encoder = lambda name: TokenEncoder(
        Model(model, "raw", "fp32", [folder / "p.arrow"]), opening._device
    )
    encoder, search = opening.ivfpq("late", folder / "index", lambda fingerprint: 2, 30)
    rankings = search.search(encoder.encode(encoder.tokenize(world.query_texts[:20])), 20)
    for online, ranking in zip(rankings, read_run(run), strict=True):
        assert online.scores == pytest.approx(ranking.scores, abs=1e-3)
        assert len({*online.doc_ids} & {*ranking.doc_ids}) >= len(ranking.doc_ids) - 1

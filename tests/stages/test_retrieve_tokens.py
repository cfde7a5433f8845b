import itertools
import string

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

from cort import encode_tokens, retrieve_tokens
from cort.formats.runs import read_run
from cort.formats.tokens import Tokens
from cort.models.late_interaction import load_token_encoder

CPU = torch.device("cpu")
SETTINGS = [
    {},
    {"similarity": "dot", "term_weights": True},
    {"similarity": "l2", "fill_queries": True},
    {"fill_queries": True, "skip_punctuation": True, "term_weights": True},
]


def encode(model, caches, folder, shards=1):
    paths = [folder / f"{number}-of-{shards}.arrow" for number in range(1, shards + 1)]
    for path in paths:
        arguments = ["--model", model, "--tokens", caches["passages"], "--shard", path.stem, "--output", path]
        assert encode_tokens.main([str(word) for word in arguments]) == 0
    return paths


def options(model, caches, passages, output, **changes):
    named = {
        "model": model,
        "queries": caches["queries.train"],
        "depth": 30,
        "tag": "late",
        "output": output,
        **changes,
    }
    words = itertools.chain(*((f"--{name}", value) for name, value in named.items()), ["--passages"], passages)
    return [str(word) for word in words]


def scores_of_pairs(model, caches):
    """Scores of all pairs by the re-ranker, (queries, passages), and the ids of both."""
    reranker, template = load_token_encoder(model)
    queries, passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    pairs = reranker.pairs(queries, passages, template)
    rows = np.repeat(np.arange(len(queries)), len(passages)), np.tile(np.arange(len(passages)), len(queries))
    with torch.inference_mode():
        scores = pairs.score(reranker, *rows, CPU).numpy().reshape(len(queries), len(passages))
    return scores, queries.ids.to_pylist(), passages.ids.to_pylist()


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_scores_are_the_rerankers_up_to_half_precision(make_reranker, caches, tmp_path, settings):
    model = make_reranker(kind="late_interaction", dimension=6, **settings)
    assert retrieve_tokens.main(options(model, caches, encode(model, caches, tmp_path), tmp_path / "run.trec")) == 0
    scores, query_ids, ids = scores_of_pairs(model, caches)
    run = read_run(tmp_path / "run.trec")
    assert run.query_ids == query_ids
    allowed = 2e-3 * float(np.abs(scores).max())
    for row, ranking in zip(scores, run, strict=True):
        assert len(ranking.doc_ids) == min(30, len(ids))
        own = row[[ids.index(name) for name in ranking.doc_ids]]
        assert ranking.scores == pytest.approx(own, abs=allowed)
        # Nothing is left out that is better than the last.
        assert ranking.scores == pytest.approx(np.sort(row)[::-1][: len(own)], abs=allowed)


def test_the_run_is_the_same_of_any_shards_and_batches(make_reranker, caches, tmp_path, monkeypatch):
    monkeypatch.setattr(encode_tokens, "BLOCK", 13)
    model = make_reranker(kind="late_interaction", similarity="l2", term_weights=True)
    found = set()
    for shards in (1, 2, 4):
        (tmp_path / str(shards)).mkdir()
        paths = encode(model, caches, tmp_path / str(shards), shards)
        for threads in (1, 2) if shards == 2 else (1,):
            output = tmp_path / f"{shards}.trec"
            assert retrieve_tokens.main(options(model, caches, paths, output, threads=threads)) == 0
            found.add(output.read_bytes())
    torch.set_num_threads(1)
    assert len(found) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"dimension": 7}, "dimension 6, expected dimension 7"),
        ({"max_length": 20}, "passage length 24, expected passage length 20"),
        ({"similarity": "dot"}, "similarity cosine, expected similarity dot"),
        ({"seed": 9}, "model "),
    ],
)
def test_an_index_of_another_model_is_refused(make_reranker, caches, tmp_path, complaint, change, words):
    named = {"kind": "late_interaction", "dimension": 6}
    (path,) = encode(make_reranker(**named), caches, tmp_path)
    output = tmp_path / "run.trec"
    line = complaint(
        retrieve_tokens.main, options(make_reranker(**{**named, **change}), caches, [path], output), output
    )
    assert line.startswith(f"{path}: found token vectors of {words}")
    assert line.endswith("; delete the file and encode again")


def test_bad_input_is_refused(make_reranker, caches, tmp_path, complaint):
    model, cross, output = make_reranker(kind="late_interaction"), make_reranker(), tmp_path / "run.trec"
    (path,) = encode(model, caches, tmp_path)

    def refused(model=model, path=path, **changes):
        return complaint(retrieve_tokens.main, options(model, caches, [path], output, **changes), output)

    assert "found a re-ranker of the kind cross_encoder, expected one of the kind late_interaction" in refused(cross)
    assert refused(depth=0).startswith("--depth: found 0, expected 1 or more")
    assert refused(path=caches["passages"]).startswith(
        f"{caches['passages']}: found another Arrow file, expected token"
    )
    path.write_bytes(path.read_bytes()[:-9])
    assert refused().startswith(f"{path}: found ")


def write_without_segments(folder):
    """Make a model of which the segment says nothing, as in sentence-transformers."""
    weights = load_file(folder / "model.safetensors")
    (name,) = [name for name in weights if name.endswith("token_type_embeddings.weight")]
    weights[name][1] = weights[name][0]
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("fill", [False, True])
def test_the_scores_are_those_of_sentence_transformers(make_reranker, world, caches, tmp_path, fill):
    peer = pytest.importorskip("sentence_transformers", "6.2")
    modules = pytest.importorskip("sentence_transformers.base.modules")
    mask = pytest.importorskip("sentence_transformers.multi_vector_encoder.modules").MultiVectorMask
    folder = make_reranker(kind="late_interaction", dimension=6, fill_queries=fill, skip_punctuation=True)
    write_without_segments(folder)
    expansion = {"strategy": "fixed", "length": 8, "attend": False, "token": "[MASK]"} if fill else None
    lengths = {"query_length": 8, "document_length": 24, "query_expansion": expansion}
    layer = load_file(folder / "head.safetensors")["vectors.weight"]
    dense = modules.Dense(
        32, 6, bias=False, activation_function=None, init_weight=layer, module_input_name="token_embeddings"
    )
    parts = [modules.Transformer(str(folder), **lengths), dense, mask(list(string.punctuation))]
    model = peer.MultiVectorEncoder(modules=parts, device="cpu")
    texts = [pq.read_table(world.path(f"{name}.parquet"))["text"].to_pylist() for name in ("queries.train", "passages")]
    queries = model.encode_query(texts[0], normalize_embeddings=True)
    passages = model.encode_document(texts[1], normalize_embeddings=True)
    expected = model.similarity(queries, passages).numpy()
    scores, query_ids, ids = scores_of_pairs(folder, caches)
    assert np.abs(scores - expected).max() < 1e-5
    assert retrieve_tokens.main(options(folder, caches, encode(folder, caches, tmp_path), tmp_path / "run.trec")) == 0
    for ranking in read_run(tmp_path / "run.trec"):
        row = expected[query_ids.index(ranking.query_id)]
        found = [float(row[ids.index(name)]) for name in ranking.doc_ids]
        assert ranking.scores == pytest.approx(found, abs=0.01)

import itertools

import numpy as np
import pytest
import torch

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
    allowed = 2e-3 * np.abs(scores).max()
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

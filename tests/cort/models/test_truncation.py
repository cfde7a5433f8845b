import logging

import numpy as np
import pytest

from cort.formats.shards import Tokens
from cort.models import truncation
from cort.models.encoder import load_encoder
from cort.models.rerankers import load_reranker
from cort.models.tokenizer import load_template
from tests.support.released import change_json, copy_model


def test_shares_are_of_texts_and_of_their_tokens():
    found = truncation.measure_truncation(np.array([2, 4, 6, 8]), 5)
    assert (found.texts, found.mean_tokens, found.limit, found.cut_texts, found.cut_tokens) == (4, 5, 5, 0.5, 0.2)
    assert truncation.measure_truncation(np.array([2, 4]), np.array([1, 9])).cut_texts == 0.5
    assert truncation.measure_truncation(np.empty(0, np.int64), 5).cut_texts == 0


@pytest.mark.parametrize(("kind", "text"), [("passage", "passages"), ("query", "queries.train")])
def test_of_an_encoder_as_much_is_lost_as_its_sequences_lack(make_encoder, caches, tmp_path, kind, text):
    folder, tokens = make_encoder(query_length=5, passage_length=9), Tokens(caches[text])
    texts = load_encoder(folder).texts(tokens, kind)
    kept = texts.lengths(np.arange(len(tokens))) - texts.template.extra
    truncation.write_lengths(tmp_path / "lengths.json", tokens.lengths)
    found = truncation.measure_texts(truncation.read_limits(folder), {text: tmp_path / "lengths.json"})[text]
    assert found.cut_texts == (kept < tokens.lengths).mean() > 0
    assert found.cut_tokens == pytest.approx(1 - kept.sum() / tokens.lengths.sum())


@pytest.mark.parametrize("kind", ["cross_encoder", "released", "late_interaction", "knrm"])
def test_of_a_reranker_as_much_is_lost_as_its_pairs_lack(make_reranker, lm, caches, tmp_path, kind):
    folder = make_reranker(query_length=7, max_length=14, kind="cross_encoder" if kind == "released" else kind)
    if kind == "released":
        change_json(copy_model(folder, tmp_path / "model") / "sentence_bert_config.json", query_length=None)
        folder, kind = tmp_path / "model", "cross_encoder"
        assert truncation.read_limits(folder).shared
    model, template = load_reranker(folder), load_template(lm)
    queries, passages = Tokens(caches["queries.train"]), Tokens(caches["passages"])
    query, passage = (rows.ravel() for rows in np.indices((len(queries), len(passages))))
    pairs = model.pairs(queries, passages)
    kept = [int(pairs.lengths(query[i : i + 1], passage[i : i + 1])[0]) for i in range(len(query))]
    special = {"cross_encoder": template.pair_extra, "late_interaction": 2 * template.extra, "knrm": 0}[kind]
    lengths, limits = (queries.lengths[query], passages.lengths[passage]), truncation.read_limits(folder)
    most = limits.of_queries(lengths[1]), limits.of_passages(lengths[0])
    ours = sum(np.minimum(found, limit).sum() for found, limit in zip(lengths, most, strict=True))
    assert ours == sum(kept) - special * len(kept)
    assert truncation.read_limits(lm) is None


def test_a_log_warns_if_many_are_truncated(caplog):
    log = logging.getLogger("x")
    with caplog.at_level(logging.INFO):
        for lengths in ([1] * 9 + [3], [1] * 8 + [3, 3]):
            truncation.log_truncation(log, "p.arrow", np.array(lengths), 2)
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    expected = "p.arrow: 10 texts, 1.4 tokens on average, 20.0% truncated to 2, 14.3% of all tokens lost"
    assert caplog.records[1].message == expected

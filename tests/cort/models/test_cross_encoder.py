from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.batching import frame_pair, pad
from cort.models.cross_encoder import load_cross_encoder, new_cross_encoder
from cort.models.rerankers import load_reranker
from cort.models.settings import PairSettings
from cort.system.errors import InputError
from tests.conftest import saved
from tests.support import released
from tests.support.released import DISTILBERT, STRANGE, check_folder, difference, peer, take_a_step

CPU = torch.device("cpu")
SETTINGS = PairSettings(query_length=8, max_length=24)
LINEAR = replace(SETTINGS, head="linear")


def pairs_of(model, caches):
    return model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))


def all_rows(count=60):
    return np.arange(count) % 20, np.arange(count) % 60


def test_pairs_are_batched_by_their_length_after_cutting(lm, caches):
    pairs = pairs_of(new_cross_encoder(lm, SETTINGS, 3), caches)
    shapes, lengths = [], []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            shapes.append(tuple(batch["input_ids"].shape))
            lengths.extend(batch["attention_mask"].sum(1).tolist())
            return torch.zeros(len(batch["input_ids"]))

    queries, passages = all_rows()
    pairs.score(Spy(), queries, passages, CPU, 100)
    query_lengths = np.minimum(pairs.queries.lengths[queries], 8 - 2)
    assert sorted(lengths) == sorted(np.minimum(query_lengths + pairs.passages.lengths[passages] + 3, 24))
    assert all(rows * longest <= 100 for rows, longest in shapes)
    assert lengths == sorted(lengths, reverse=True)


@pytest.mark.parametrize(
    ("settings", "drawn"),
    [
        (SETTINGS, {"layers.0.model.classifier.weight"}),
        (LINEAR, {"layers.2.linear.weight", "layers.2.linear.bias"}),
    ],
)
def test_the_head_is_drawn_from_the_seed_and_the_rest_is_the_base_model(lm, settings, drawn):
    from transformers import AutoModel

    one, same, other = (new_cross_encoder(lm, settings, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert {name for name in one if not torch.equal(one[name], other[name])} == drawn
    base = AutoModel.from_pretrained(lm).state_dict()
    kept = {name: weight for name, weight in base.items() if settings == SETTINGS or "pooler" not in name}
    prefix = "layers.0.model." + "bert." * (settings == SETTINGS)
    assert all(torch.equal(one[prefix + name], weight) for name, weight in kept.items())
    assert len([name for name in one if name.startswith(prefix)]) == len(kept)


def test_the_linear_head_is_a_layer_on_the_state_of_the_first_token(lm, caches):
    from transformers import AutoModel

    model = new_cross_encoder(lm, LINEAR, 3).eval()
    pairs = pairs_of(model, caches)
    batch = pad([frame_pair(pairs.queries[3], pairs.passages[5], model.template, 8, 24)], model.template.pad)
    with torch.inference_mode():
        states = AutoModel.from_pretrained(lm).eval()(**batch).last_hidden_state[0, 0]
        expected = model.layers[-1].linear(states)
        found = pairs.score(model, np.array([3]), np.array([5]), CPU, 99)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


MODELS = {"bert": {}, "albert": {}, "electra": {}, "roberta": {"type_vocab_size": 1}, "distilbert": DISTILBERT}
HEADS = [(SETTINGS, kind) for kind in MODELS] + [(LINEAR, kind) for kind in ("bert", "roberta", "distilbert")]


@pytest.mark.parametrize(("settings", "kind"), HEADS)
def test_a_trained_reranker_gives_the_scores_of_sentence_transformers(
    make_base_model, caches, world, tmp_path, settings, kind
):
    base = make_base_model(model_type=kind, **MODELS[kind])
    model = new_cross_encoder(base, settings, 3)
    tokens_of = partial(released.tokens_of, tmp_path)
    cached = [tokens_of(base, texts, name) for name, texts in (("query", world.query_texts), ("passage", world.texts))]
    take_a_step(model, lambda: model.pairs(*cached).score(model, *all_rows(10), CPU, 99))
    folder = saved(model, tmp_path / "model")
    loaded = load_reranker(folder).double()
    assert (loaded.template, loaded.query_length, loaded.max_length) == (model.template, 8, 24)
    assert not loaded.training
    # A re-ranker as a base model keeps its head.
    for state in (load_reranker(folder).state_dict(), new_cross_encoder(folder, settings, 9).state_dict()):
        assert list(state) == list(model.state_dict())
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    queries, passages = [*world.query_texts, *STRANGE], [*world.texts, *STRANGE][-36:]
    texts = tokens_of(folder, queries, "query"), tokens_of(folder, passages)
    # Sentence-transformers does not truncate queries to a limit of their own.
    rows = np.flatnonzero(texts[0].lengths <= 6)
    assert 15 < len(rows) < 36
    pairs = loaded.pairs(*texts)
    with torch.inference_mode():
        scores = torch.cat([pairs.score(loaded, row, row, CPU) for row in rows[:, None]]).numpy()
    theirs = peer("CrossEncoder", folder).double().predict([(queries[row], passages[row]) for row in rows])
    assert difference(theirs, scores) <= 1e-6
    assert scores.std() > 0.01
    check_folder(folder)


@pytest.mark.parametrize(
    ("query_length", "max_length", "line"),
    [
        (8, 49, r"max_length: found 49, expected 10 to 48 tokens"),
        (2, 24, r"query_length: found 2, expected 3 to 48 tokens"),
        (49, 24, r"query_length: found 49, expected 3 to 48 tokens"),
        # With 24 tokens of the query and one special token at the end, none is left for the passage.
        (24, 25, r"max_length: found 25, expected 26 to 48 tokens"),
    ],
)
def test_lengths_beyond_the_model_are_refused(lm, query_length, max_length, line):
    with pytest.raises(InputError, match=f"^{line} for this model; change it$"):
        new_cross_encoder(lm, PairSettings(query_length, max_length), 3)


def test_a_folder_without_a_reranker_is_refused(lm, make_encoder):
    with pytest.raises(InputError, match=rf"^{lm}: found no tensor 'classifier.bias' and 1 more"):
        load_cross_encoder(lm)
    folder = make_encoder()
    with pytest.raises(
        InputError, match=rf"^{folder}/config_sent.*SentenceTransformer, a model of the kind encoder, ex"
    ):
        load_cross_encoder(folder)

from dataclasses import replace

import numpy as np
import pytest
import torch

from cort.formats.tokens import Tokens
from cort.models.batching import frame_pair, pad
from cort.models.cross_encoder import Pairs, load_cross_encoder, new_cross_encoder
from cort.models.rerankers import load_reranker, save_reranker
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template
from cort.system.errors import InputError

CPU = torch.device("cpu")
SETTINGS = PairSettings(query_length=8, max_length=24)


def make_pairs(caches, template, settings=SETTINGS):
    return Pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]), template, settings)


def all_rows(count=60):
    return np.arange(count) % 20, np.arange(count) % 60


def test_the_logit_is_that_of_the_classifier_on_the_framed_pair(lm, caches):
    model, template = new_cross_encoder(lm, SETTINGS, 3).eval(), load_template(lm)
    pairs = make_pairs(caches, template)
    queries, passages = all_rows()
    with torch.inference_mode():
        scores = pairs.score(model, queries, passages, CPU, 200)
        assert scores.shape == (60,)
        for position in range(0, 60, 7):
            query, passage = pairs.queries[queries[position]], pairs.passages[passages[position]]
            batch = pad([frame_pair(query, passage, template, 8, 24)], template.pad)
            expected = model.classifier(**batch).logits
            assert expected.shape == (1, 1)
            assert scores[position].item() == pytest.approx(expected.item(), abs=1e-6)


def test_pairs_are_batched_by_their_length_after_cutting(lm, caches):
    template = load_template(lm)
    pairs = make_pairs(caches, template)
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


def test_the_head_is_drawn_from_the_seed_and_the_rest_is_the_base_model(lm):
    from transformers import AutoModel

    one, same, other = (new_cross_encoder(lm, SETTINGS, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    differing = {name for name in one if not torch.equal(one[name], other[name])}
    assert differing == {"classifier.classifier.weight"}
    for name, weight in AutoModel.from_pretrained(lm).state_dict().items():
        assert torch.equal(one[f"classifier.bert.{name}"], weight)


MODELS = {
    "albert": {},
    "electra": {},
    "roberta": {},
    "distilbert": {
        **dict.fromkeys(("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")),
        **{"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64},
    },
}


LINEAR = replace(SETTINGS, head="linear")
TYPES = [("classification", kind) for kind in (None, *MODELS)] + [
    ("linear", kind) for kind in (None, "electra", "distilbert")
]


@pytest.mark.parametrize(("head", "kind"), TYPES)
def test_every_type_of_model_trains_saves_and_loads(head, kind, lm, make_base_model, caches, tmp_path):
    folder, settings = make_base_model(model_type=kind, **MODELS[kind]) if kind else lm, replace(SETTINGS, head=head)
    model, template = new_cross_encoder(folder, settings, 3).eval(), load_template(folder)
    pairs = make_pairs(caches, template, settings)
    scores = pairs.score(model, *all_rows(10), CPU, 99)
    assert scores.std() > 0.01
    scores.sum().backward()
    assert head == "classification" or all(parameter.grad is not None for parameter in model.parameters())
    # Padding changes nothing.
    alone = torch.cat([pairs.score(model, *(rows[i : i + 1] for rows in all_rows(10)), CPU, 99) for i in range(10)])
    assert torch.allclose(scores, alone, atol=1e-6)
    save_reranker(model, folder, tmp_path / "m")
    loaded, loaded_template = load_reranker(tmp_path / "m")
    assert loaded_template == template
    assert loaded.settings == settings
    assert not loaded.training
    # A re-ranker as a base model keeps its head.
    for state in (loaded.state_dict(), new_cross_encoder(tmp_path / "m", settings, 9).state_dict()):
        assert list(state) == list(model.state_dict())
        assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with torch.inference_mode():
        # Not equal to the last bit: weights that are mapped from a file are aligned differently in memory.
        assert torch.allclose(pairs.score(loaded, *all_rows(10), CPU, 99), scores, atol=1e-6)
        again, _ = load_reranker(tmp_path / "m")
        assert torch.equal(*(pairs.score(reranker, *all_rows(10), CPU, 99) for reranker in (loaded, again)))
    names = {path.name for path in folder.iterdir()} | {"reranker.json", "head.safetensors"}
    assert {path.name for path in (tmp_path / "m").glob("[!.]*")} == names
    (tmp_path / "m" / "head.safetensors").unlink()
    if head == "linear":
        with pytest.raises(InputError, match=r"train again"):
            load_reranker(tmp_path / "m")


def test_the_linear_head_is_a_layer_on_the_state_of_the_first_token(lm, caches):
    from transformers import AutoModel

    model, template = new_cross_encoder(lm, LINEAR, 3).eval(), load_template(lm)
    pairs = make_pairs(caches, template, LINEAR)
    batch = pad([frame_pair(pairs.queries[3], pairs.passages[5], template, 8, 24)], template.pad)
    with torch.inference_mode():
        states = AutoModel.from_pretrained(lm).eval()(**batch).last_hidden_state[0, 0]
        expected = model.head.weight[0] @ states + model.head.bias[0]
        found = pairs.score(model, np.array([3]), np.array([5]), CPU, 99)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)
    assert not [name for name in model.state_dict() if "pooler" in name]
    one, same, other = (new_cross_encoder(lm, LINEAR, seed).state_dict() for seed in (3, 3, 4))
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert {name for name in one if not torch.equal(one[name], other[name])} == {"head.weight", "head.bias"}


@pytest.mark.parametrize(
    ("query_length", "max_length", "line"),
    [
        (8, 49, r"max_length: found 49, expected 10 to 48 tokens"),
        (2, 24, r"query_length: found 2, expected 3 to 48 tokens"),
        (49, 24, r"query_length: found 49, expected 3 to 48 tokens"),
        # With 24 tokens of the query and one special token at the end, none is left for the passage.
        (24, 25, r"max_length: found 25, expected 26 to 48 tokens"),
        (24, 24, r"max_length: found 24, expected 26 to 48 tokens"),
    ],
)
def test_lengths_beyond_the_model_are_refused(lm, query_length, max_length, line):
    with pytest.raises(InputError, match=f"^{line} for this model; change it$"):
        new_cross_encoder(lm, PairSettings(query_length, max_length), 3)


def test_a_folder_without_a_reranker_is_refused(lm):
    with pytest.raises(InputError, match=rf"^{lm}: found no re-ranker \(.*\), expected a folder that `train_reranker`"):
        load_cross_encoder(lm)

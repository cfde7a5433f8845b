import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.cross_encoder import new_cross_encoder
from cort.runtime.errors import InputError
from tests.support.framing import frame_pair
from tests.support.small import pair_settings

CPU = torch.device("cpu")
SETTINGS = pair_settings(8, 24)
LINEAR = SETTINGS.model_copy(update={"head": "linear"})


def pairs_of(model, caches):
    return model.pairs(Tokens(caches["queries.train"]), Tokens(caches["passages"]))


@pytest.mark.parametrize(
    ("settings", "drawn"),
    [(SETTINGS, {"layers.0.model.classifier.weight"}), (LINEAR, {"layers.2.linear.weight", "layers.2.linear.bias"})],
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
    ids, segments = map(torch.from_numpy, frame_pair(pairs.queries[3], pairs.passages[5], model.template, 8, 24))
    batch = {"input_ids": ids[None], "token_type_ids": segments[None], "attention_mask": torch.ones_like(ids)[None]}
    with torch.inference_mode():
        states = AutoModel.from_pretrained(lm).eval()(**batch).last_hidden_state[0, 0]
        expected = model.layers[-1].linear(states)
        found = pairs.score(model, np.array([3]), np.array([5]), CPU)
    assert found.item() == pytest.approx(expected.item(), abs=1e-6)


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
        settings = pair_settings(8, 24).model_copy(update={"query_length": query_length, "max_length": max_length})
        new_cross_encoder(lm, settings, 3)

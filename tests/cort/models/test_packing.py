import json

import numpy as np
import pytest
import torch

from cort.models import packing
from cort.models.batching import Packing
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder
from cort.models.packing import ATTENTION, attend, can_pack, is_right
from cort.models.sparse_encoder import new_sparse_encoder, without_query_model
from tests.conftest import saved
from tests.support.layers import TYPES, batch_of
from tests.support.small import encoder_settings, pair_settings

CPU = torch.device("cpu")
LENGTHS = (20, 1, 7, 13)


@pytest.fixture
def packed(monkeypatch):
    """Pack a model as on a GPU where the attention is right."""
    monkeypatch.setattr("cort.models.modules.can_pack", lambda *_: True)

    def pack(model):
        model.pack(CPU, "bf16")
        return model

    return pack


def with_packing(batch):
    lengths = batch["attention_mask"].sum(1).numpy()
    return {**batch, "packing": Packing.of(lengths, batch["input_ids"].shape[1])}


def gradients_of(model, outputs):
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    return torch.autograd.grad(outputs.square().sum(), weights, allow_unused=True)


def make(kind, folder):
    if kind == "encoder":
        return new_encoder(folder, encoder_settings("mean", 8, 12, 16), 3)
    return new_cross_encoder(folder, pair_settings(8, 24, head=kind), 3)


@pytest.mark.parametrize("head", ["encoder", "linear", "classification"])
@pytest.mark.parametrize("kind", TYPES)
def test_packed_sequences_have_the_outputs_and_gradients_of_padded_ones(of_type, packed, kind, head):
    model = packed(make(head, of_type(kind))).eval().double()
    batch = batch_of(*LENGTHS) | ({"task": "document"} if head == "encoder" else {})
    padded, found = model(batch), model(with_packing(batch))
    assert torch.allclose(found, padded, rtol=0, atol=1e-12)
    for one, other in zip(gradients_of(model, found), gradients_of(model, padded), strict=True):
        assert one is other is None or torch.allclose(one, other, rtol=1e-9, atol=1e-9)


def test_layers_see_no_padding_and_dropout_is_drawn(lm, packed, monkeypatch):
    model, seen = packed(make("encoder", lm)), []
    layer = model.transformer.encoder.layer[0]
    layer.register_forward_pre_hook(lambda _, inputs: seen.append((inputs[0].shape, inputs[1])))
    batch = {**batch_of(*LENGTHS), "task": "document"}
    drawn = []
    monkeypatch.setattr(packing, "attend", lambda *inputs: drawn.append(inputs[5]) or attend(*inputs))
    model(with_packing(batch))
    assert (seen, drawn) == ([((1, sum(LENGTHS), 32), None)], [0.1, 0.1])


def test_a_packed_model_is_saved_like_any_other(lm, packed, tmp_path):
    saved(packed(make("encoder", lm)), tmp_path / "packed")
    saved(make("encoder", lm), tmp_path / "plain")
    configs = [path.read_text() for path in sorted(tmp_path.rglob("*/config.json"))]
    assert len(set(map(json.dumps, configs))) * 2 == len(configs)
    assert ATTENTION not in "".join(configs)


@pytest.mark.parametrize("segments", [(1, 0), (0, 0)])
def test_queries_and_passages_may_be_read_together_unless_their_modules_differ(lm, packed, segments):
    settings = encoder_settings("mean", 8, 12, 16, query_segment=segments[0], passage_segment=segments[1])
    model = packed(new_encoder(lm, settings, 3))
    assert (model.reads_no_padding, model.reads_alike()) == (True, True)
    # Prompts that pooling leaves out are of one length.
    model._prompt_lengths["query"] = 2
    assert not model.reads_alike()
    sparse = packed(new_sparse_encoder(lm, settings, 3))
    # Logits of all tokens of a padded batch would not fit into memory.
    assert not sparse.reads_no_padding
    assert sparse.reads_alike()
    assert not without_query_model(sparse, torch.ones(160)).reads_alike()


def test_only_models_whose_attention_was_found_right_on_a_gpu_are_packed(lm, monkeypatch):
    transformer = make("encoder", lm).transformer
    gpu = torch.device("cuda")
    right = []
    monkeypatch.setattr(packing, "is_right", lambda *of: right.append(of) or True)
    assert [can_pack(transformer, *where) for where in ((CPU, "bf16"), (gpu, "fp32"), (gpu, "bf16"))] == [0, 0, 1]
    assert right == [("bf16", gpu, 16)]
    transformer.config.model_type = "mpnet"
    assert not can_pack(transformer, gpu, "bf16")


def test_wrong_or_missing_attention_is_noticed(monkeypatch):
    is_right.cache_clear()
    assert is_right("bf16", CPU, 16)
    for wrong in (lambda *inputs: attend(*inputs) * 1.2, lambda *_: torch.zeros(2).view(5)):
        is_right.cache_clear()

        def half(query, *inputs, wrong=wrong):
            return (attend if query.dtype == torch.float64 else wrong)(query, *inputs)

        monkeypatch.setattr(packing, "attend", half)
        assert not is_right("bf16", CPU, 16)
    is_right.cache_clear()


def test_places_are_those_of_the_tokens():
    found = Packing.of(np.array([2, 0, 3]), 3)
    assert found.places.tolist() == [0, 1, 6, 7, 8]
    assert (found.starts.tolist(), found.starts.dtype, found.longest) == ([0, 2, 2, 5], torch.int32, 3)


def test_flash_attention_gets_and_gives_what_the_layers_do():
    """Shapes alone, as on a GPU."""
    states = torch.empty(3, 1, 4, 87, 16, device="meta", dtype=torch.bfloat16, requires_grad=True)
    starts = torch.empty(5, device="meta", dtype=torch.int32)
    attended = attend(*states, starts, 64, 0.1, 0.25)
    assert (attended.shape, attended.dtype) == ((1, 87, 4, 16), torch.bfloat16)
    [gradients] = torch.autograd.grad(attended.sum(), states)
    assert gradients.shape == states.shape

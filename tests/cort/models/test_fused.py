import pytest
import torch
from transformers import AutoModel

from cort.models import fused
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder
from cort.models.fused import FusedLinear
from tests.support.layers import batch_of
from tests.support.small import encoder_settings, pair_settings

CPU = torch.device("cpu")
MEAN = encoder_settings("mean", 8, 12, 16)
# Linear layers of a model of two layers, or of ALBERT's one: six of each, a projection of embeddings, a pooler.
COUNTS = {"bert": 12, "albert": 7, "electra": 13, "roberta": 12}


def count_fused(model):
    return sum(isinstance(module, FusedLinear) for module in model.modules())


@pytest.mark.parametrize("kind", COUNTS)
def test_fused_layers_compute_what_those_of_transformers_do(of_type, kind):
    folder = of_type(kind)
    encoder, theirs = new_encoder(folder, MEAN, 3).eval(), AutoModel.from_pretrained(folder).eval()
    batch = batch_of(20, 7)
    with torch.inference_mode():
        before = encoder({**batch, "task": "document"})
        encoder.place(CPU, "fp32")
        assert torch.allclose(encoder({**batch, "task": "document"}), before, rtol=0, atol=1e-6)
        kept = batch["attention_mask"].bool()
        states = [model(**batch).last_hidden_state[kept] for model in (encoder.transformer, theirs)]
    assert torch.allclose(*states, rtol=0, atol=1e-5)
    assert count_fused(encoder) == COUNTS[kind]


@pytest.mark.parametrize("head", ["linear", "classification"])
def test_heads_of_re_rankers_are_not_fused_and_scores_stay_the_same(lm, head):
    model, batch = new_cross_encoder(lm, pair_settings(8, 24, head=head), 3).eval(), batch_of(20, 7)
    with torch.inference_mode():
        before = model(batch)
        for _ in range(2):
            model.place(CPU, "fp32")
            assert torch.allclose(model(batch), before, rtol=0, atol=1e-6)
    assert count_fused(model) == 12 + (head == "classification")


def test_where_the_layers_are_missing_or_wrong_those_of_torch_are_used(lm, monkeypatch):
    def missing(self, states):
        raise RuntimeError("fp16 path needs the cpu support avx512_fp16")

    for wrong in (lambda self, states: torch.zeros_like(states), missing):
        fused.is_right.cache_clear()
        monkeypatch.setattr(FusedLinear, "forward", wrong)
        encoder = new_encoder(lm, MEAN, 3)
        encoder.place(CPU, "fp32")
        fused.is_right.cache_clear()
        assert not count_fused(encoder)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_half_precision_runs_with_and_without_fused_layers(lm, precision):
    encoder, batch = new_encoder(lm, MEAN, 3).eval(), {**batch_of(20, 7), "task": "document"}
    with torch.inference_mode():
        before = encoder(batch)
        encoder.place(CPU, precision)
        assert torch.allclose(encoder(batch), before, rtol=0, atol=0.1)

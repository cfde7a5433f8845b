"""What a base model may lack or have too much of; faults are another file's."""

import shutil

import pytest
import torch
import transformers

from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder
from cort.models.loading import load_transformer
from tests.support.released import BERT, change_weights
from tests.support.small import encoder_settings, pair_settings

ENCODER, PAIRS = encoder_settings("mean", 8, 12, 16), pair_settings(8, 24)
SIZES = {**BERT, "vocab_size": 160, "num_hidden_layers": 1, "max_position_embeddings": 48}
ROBERTA = transformers.RobertaConfig(**SIZES, pad_token_id=0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: transformers.BertForPreTraining(transformers.BertConfig(**SIZES)),
        lambda: transformers.BertForPreTraining(transformers.BertConfig(**SIZES)).bert,
        lambda: transformers.RobertaModel(ROBERTA),
        lambda: transformers.RobertaModel(ROBERTA, add_pooling_layer=False),
    ],
)
def test_heads_of_a_base_model_may_be_missing_or_unused(lm, tmp_path, make):
    made, base = make(), shutil.copytree(lm, tmp_path / "base")
    made.save_pretrained(base)
    encoder, reranker = new_encoder(base, ENCODER, 3), new_cross_encoder(base, PAIRS, 3)
    for name, value in encoder.transformer.state_dict().items():
        assert torch.equal(value, made.base_model.state_dict()[name])
        assert torch.equal(value, reranker.transformer.base_model.state_dict()[name])
    change_weights(base / "model.safetensors", lambda weights: weights.update({"cls.predictions.x": torch.ones(2)}))
    load_transformer(base)

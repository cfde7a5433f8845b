"""What a base model may lack or have too much of, and token ids that are none of it; faults are another file's."""

import shutil

import numpy as np
import pytest
import torch
import transformers

from cort.formats.shards import Tokens
from cort.models.cross_encoder import new_cross_encoder
from cort.models.encoder import new_encoder, texts_of
from cort.models.loading import load_transformer
from cort.models.settings import EncoderSettings, PairSettings
from cort.runtime.errors import InputError
from tests.support.released import BERT, change_weights

ENCODER, PAIRS = EncoderSettings("mean", 8, 12, 16), PairSettings(8, 24)
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


@pytest.mark.parametrize("token", [160, 2**31 - 1, -1])
def test_token_ids_beyond_the_vocabulary_are_refused(lm, token):
    encoder = new_encoder(lm, ENCODER, 3).eval()
    tokens = Tokens.of_texts([np.array([7, 8], np.int32), np.array([7, token], np.int32)])
    texts = texts_of(tokens, encoder, "passage")
    with torch.inference_mode():
        assert len(texts.encode(encoder, np.array([0]), torch.device("cpu"))) == 1
        with pytest.raises(InputError, match=f"found the token id {token}, expected ids below the tokenizer's 160"):
            texts.encode(encoder, np.array([0, 1]), torch.device("cpu"))

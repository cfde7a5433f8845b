import math
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoModelForSeq2SeqLM, BartConfig, BartForConditionalGeneration

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts
from cort.models.expander import Expander, Finite, Sampling, load_expander
from tests.support.framing import frame_of

K, QUERIES, STEPS = 4, 3, 7


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_nan_and_infinite_logits_are_refused(wrong):
    with pytest.raises(FloatingPointError):
        Finite()(None, torch.tensor([[0.0, wrong, 1.0]]))


@pytest.fixture(scope="module")
def bart(lm, tmp_path_factory):
    """Folder of another encoder-decoder, whose queries begin with the token that also ends them."""
    folder = shutil.copytree(lm, tmp_path_factory.mktemp("bart") / "model")
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    sizes |= {"encoder_attention_heads": 2, "decoder_attention_heads": 2, "max_position_embeddings": 48}
    special = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "decoder_start_token_id": 3}
    torch.manual_seed(2)
    config = BartConfig(vocab_size=160, init_std=0.3, forced_eos_token_id=None, **sizes, **special)
    BartForConditionalGeneration(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module", params=["t5", "bart"])
def folder(request):
    return request.getfixturevalue(request.param)


@pytest.fixture(scope="module")
def world_of(folder, caches):
    """The model in double precision, so that the order of additions does not matter; the passages."""
    expander, template = load_expander(folder, 16, Sampling(QUERIES, STEPS, K))
    return expander.double(), FramedTexts(Tokens(caches["passages"]), template, 16)


def batch_of(passages, rows):
    return passages.sequences(np.array(rows)).batch(np.arange(len(rows)))


def cut(tokens, end):
    """Tokens up to and including the end."""
    return tokens[: tokens.index(end) + 1] if end in tokens else tokens


def test_samples_are_those_of_transformers_and_the_seed(folder, world_of):
    model, passages = world_of
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).double().eval()
    batch = batch_of(passages, [3, 0, 11, 25])
    how = {"do_sample": True, "top_k": K, "num_return_sequences": QUERIES, "max_new_tokens": STEPS}
    with torch.inference_mode():
        state = torch.get_rng_state()
        ours = model(batch, 5)
        assert torch.equal(torch.get_rng_state(), state)
        torch.manual_seed(5)
        expected = theirs.generate(batch["input_ids"], attention_mask=batch["attention_mask"], **how)[:, 1:]
        assert ours.flatten(0, 1).tolist() == expected.tolist()
        assert model(batch, 6).tolist() != ours.tolist()
        # The most probable token at each step.
        best = Expander(model.transformer, Sampling(2, STEPS, 1))(batch, 5)
        assert torch.equal(best[:, 0], best[:, 1])


@pytest.mark.parametrize(("beams", "queries"), [(1, 1), (3, 1), (4, 2)])
def test_beam_search_finds_the_queries_of_transformers(folder, world_of, beams, queries):
    model, passages = world_of
    rows = [3, 0, 11, 25]
    theirs = AutoModelForSeq2SeqLM.from_pretrained(folder).double().eval()
    with torch.inference_mode():
        searching = Expander(model.transformer, Sampling(queries, STEPS, beams=beams))
        ours = searching(batch_of(passages, rows), 1).tolist()
        for row, found in zip(rows, ours, strict=True):
            ids = torch.from_numpy(frame_of(passages.sequences(np.array([row])))[0])[None]
            settings = {"max_new_tokens": STEPS, "num_beams": beams, "num_return_sequences": queries}
            expected = theirs.generate(ids, **settings, do_sample=False).tolist()
            end = model.transformer.config.eos_token_id
            assert [cut(one, end) for one in found] == [cut(one[1:], end) for one in expected]

import shutil

import numpy as np
import pytest
import torch

from cort.formats.shards import Tokens
from cort.models.encoder import load_encoder, new_encoder
from cort.models.layout import model_fingerprint
from cort.runtime.errors import InputError
from tests.support.small import encoder_settings

CPU = torch.device("cpu")
MEAN = encoder_settings("mean", 8, 12, 16)
WEIGHTED = MEAN.model_copy(update={"pooling": "weighted_mean"})
REPBERT = encoder_settings("mean", 32, 12, 16, "inner_product", projection=False, query_segment=0, passage_segment=1)


def test_the_weighted_mean_weights_each_token_but_trains_no_weight(lm):
    weights = torch.rand(160, generator=torch.Generator().manual_seed(1)) + 0.1
    encoder, plain = (
        new_encoder(lm, REPBERT.model_copy(update={"pooling": pooling}), 3, token_weights=given).eval()
        for pooling, given in (("weighted_mean", weights.clone()), ("mean", None))
    )
    template = encoder.framings["passage"].template
    ids = [*template.before, 7, 9, 7, *template.after]
    batch = {"input_ids": torch.tensor([ids]), "task": "document"}
    batch |= {name: torch.ones_like(batch["input_ids"]) for name in ("attention_mask", "token_type_ids")}
    [states] = plain.run(batch)["token_embeddings"]  # (tokens, e)
    special = [*template.before, *template.after]
    expected = [weights.min() if token in special else weights[token] for token in ids]
    mean = sum(w * state for w, state in zip(expected, states, strict=True)) / sum(expected)
    assert torch.allclose(encoder(batch)[0], mean, atol=1e-6)
    [layer] = [layer for layer in encoder.layers if type(layer).__name__ == "WordWeights"]
    assert not layer.emb_layer.weight.requires_grad
    with pytest.raises(InputError, match="pooling: found weighted_mean without passages"):
        new_encoder(lm, WEIGHTED, 3)


@pytest.mark.usefixtures("small_batches")
def test_vectors_are_in_the_order_of_the_rows_and_depend_on_the_seed(lm, caches):
    encoder, same, other = (new_encoder(lm, MEAN, seed).eval() for seed in (3, 3, 4))
    drawn = [one.projection.weight for one in (encoder, same, other)]
    assert [torch.equal(drawn[0], one) for one in drawn] == [True, True, False]
    texts = encoder.texts(Tokens(caches["passages"]), "passage")
    rows = np.random.default_rng(1).permutation(60)
    rows[10] = rows[3]
    with torch.inference_mode():
        together = texts.encode(encoder, rows, CPU)
        for position in (0, 3, 10, 59):
            alone = texts.encode(encoder, rows[position : position + 1], CPU)
            assert torch.allclose(together[position], alone[0], atol=1e-6)
    assert torch.allclose(together[3], together[10], atol=1e-6)


def test_dropout_is_off_in_a_loaded_encoder_and_on_in_training(make_encoder, caches):
    encoder = load_encoder(make_encoder())
    texts = encoder.texts(Tokens(caches["passages"]), "passage")
    with torch.inference_mode():
        assert torch.equal(*(texts.encode(encoder, np.arange(5), CPU) for _ in range(2)))
        encoder.train()
        assert not torch.equal(*(texts.encode(encoder, np.arange(5), CPU) for _ in range(2)))


def test_queries_and_passages_share_their_weights(make_encoder, lm):
    folder = make_encoder()
    routes = load_encoder(folder).saved[0].sub_modules
    assert routes["query"][1] is routes["document"][0]
    sizes = {path.parent.name: path.stat().st_size for path in folder.rglob("model.safetensors")}
    assert sizes["document_0_Transformer"] <= (lm / "model.safetensors").stat().st_size
    # One number per token and position, and a header.
    assert sizes["query_0_Transformer"] < 4 * (160 + 12 + 4) + 1_000


def test_the_fingerprint_depends_on_weights_settings_and_tokenizer(make_encoder, tmp_path):
    folder = make_encoder()
    one = model_fingerprint(folder)
    assert one == model_fingerprint(make_encoder())
    assert len({one, *(model_fingerprint(make_encoder(**change)) for change in ({"seed": 9}, {"pooling": "cls"}))}) == 3
    copy = shutil.copytree(folder, tmp_path / "copy")
    (copy / "README.md").write_text("what it is")
    assert model_fingerprint(copy) == one
    files = [path for path in copy.rglob("*") if path.suffix in (".json", ".safetensors")]
    assert len(files) > 10
    for path in files:
        content = path.read_bytes()
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert model_fingerprint(copy) != one
        path.write_bytes(content)
    assert model_fingerprint(copy) == one

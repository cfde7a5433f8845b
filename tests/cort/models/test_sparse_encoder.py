import json
import logging
import shutil

import numpy as np
import pytest
import torch
from sentence_transformers import SparseEncoder
from sentence_transformers.base.modules import Router
from sentence_transformers.sparse_encoder.modules import SparseStaticEmbedding, SpladePooling, Transformer
from transformers import AutoModelForMaskedLM

from cort.formats.shards import Tokens
from cort.models.settings import EncoderSettings
from cort.models.sparse_encoder import idf, load_sparse_encoder, new_sparse_encoder, without_query_model
from cort.models.tokenizer import fingerprint
from tests.conftest import saved
from tests.support.released import tokens_of

CPU = torch.device("cpu")
pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _quiet():
    logging.getLogger("sentence_transformers").setLevel(logging.ERROR)


@pytest.fixture
def masked_lm(lm, tmp_path):
    """A plain masked language model, with a head of random weights."""
    folder = shutil.copytree(lm, tmp_path / "mlm")
    torch.manual_seed(5)
    model = AutoModelForMaskedLM.from_pretrained(lm)
    # So that about half of all tokens have no weight.
    torch.nn.init.normal_(model.get_output_embeddings().bias)
    model.save_pretrained(folder)
    return folder


def released(layout, masked_lm, folder):
    """Write a sparse encoder as others release it."""
    if layout == "masked language model":
        return masked_lm
    transformer = Transformer(str(masked_lm), transformer_task="fill-mask", max_seq_length=14)
    pooling = {"sum": SpladePooling("sum"), "log1p_relu": SpladePooling("max", "log1p_relu")}.get(
        layout, SpladePooling()
    )
    modules = [transformer, pooling]
    if layout == "inference-free":
        weights = torch.rand(len(transformer.tokenizer))
        static = SparseStaticEmbedding(transformer.tokenizer, weights, frozen=True)
        modules = [Router.for_query_document([static], modules)]
    most = 7 if layout == "max_active_dims" else None
    SparseEncoder(modules=modules, device="cpu", max_active_dims=most).save(str(folder))
    if layout == "SPLADE of earlier releases":
        index = json.loads((folder / "modules.json").read_text("utf-8"))
        for module, name in zip(index, ("MLMTransformer", "SpladePooling"), strict=True):
            module["type"] = f"sentence_transformers.sparse_encoder.models.{name}"
        (folder / "modules.json").write_text(json.dumps(index), "utf-8")
    return folder


def check_weights(folder, ours, texts, tmp_path):
    """Compare the weights of texts with those of sentence-transformers."""
    theirs = SparseEncoder(str(folder), device="cpu")
    encoder = load_sparse_encoder(ours)
    for kind, encode in (("query", theirs.encode_query), ("passage", theirs.encode_document)):
        tokens = tokens_of(tmp_path, ours, texts, kind)
        with torch.inference_mode():
            weights = encoder.texts(tokens, kind).encode(encoder, np.arange(len(texts)), CPU)
        expected = encode(texts).to_dense()
        assert 0 < (expected > 0).sum() < expected.numel()
        assert torch.allclose(weights, expected, rtol=0, atol=1e-5)


LAYOUTS = ["masked language model", "SPLADE of earlier releases", "sum", "log1p_relu", "max_active_dims"]
LAYOUTS += ["inference-free"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_released_encoders_give_the_weights_of_sentence_transformers(layout, masked_lm, world, tmp_path, stage):
    folder = released(layout, masked_lm, tmp_path / "released")
    ours = stage("pretrained", kind="sparse", pretrained=folder, output=tmp_path / "ours")
    # One text is longer than the model reads, one is empty but for its frame.
    texts = [" ".join(world.texts[:3]), *world.texts[:8], world.texts[9][:3]]
    check_weights(folder, ours, texts, tmp_path)


@pytest.mark.parametrize("queries", ["model", "none"])
def test_sentence_transformers_load_what_is_saved(queries, lm, caches, world, tmp_path):
    encoder = new_sparse_encoder(lm, EncoderSettings(query_length=8, passage_length=16), 1)
    if queries == "none":
        encoder = without_query_model(encoder, idf(Tokens(caches["passages"]), encoder.dimension))
    folder = saved(encoder, tmp_path / "saved")
    assert fingerprint(folder) == fingerprint(lm)
    check_weights(folder, folder, [" ".join(world.texts[:3]), *world.texts[:8]], tmp_path)


def test_a_new_head_predicts_the_tokens_of_the_text(make_base_model, caches):
    # In few dimensions, embeddings of random weights are near each other; large layers would hide them.
    model = make_base_model(hidden_size=128, initializer_range=0.02)
    encoder = new_sparse_encoder(model, EncoderSettings(query_length=8, passage_length=40), 1).eval()
    tokens = Tokens(caches["passages"])
    with torch.inference_mode():
        weights = encoder.texts(tokens, "passage").encode(encoder, np.arange(20), CPU).numpy()
    own = np.zeros(weights.shape, bool)
    for row in range(20):
        own[row, tokens[row]] = True
    assert weights[own].mean() > 3 * weights[~own].mean()


def test_lengths_of_the_config_replace_those_of_the_model(masked_lm, caches, tmp_path, stage):
    named = {"kind": "sparse", "pretrained": masked_lm, "output": tmp_path / "ours"}
    encoder = load_sparse_encoder(stage("pretrained", **named, query_length=5, passage_length=9))
    tokens = Tokens(caches["passages"])
    assert [encoder.texts(tokens, kind).max_length for kind in ("query", "passage")] == [5, 9]


def test_idf_is_that_of_lucene():
    passages = Tokens.of_texts([np.array(ids, np.int32) for ids in ([1, 1, 2], [2], [2, 3])])
    # ln(1 + (N - n + 0.5) / (n + 0.5)) of 3 passages, of which 0, 1, 3 and 1 have the token.
    assert idf(passages, 4).exp().tolist() == pytest.approx([8, 1 + 2.5 / 1.5, 1 + 0.5 / 3.5, 1 + 2.5 / 1.5], rel=1e-5)


def test_a_sparse_encoder_is_no_dense_one(masked_lm, tmp_path, refused):
    folder = released("SPLADE", masked_lm, tmp_path / "released")
    line = refused("pretrained", kind="dense", pretrained=folder, output=tmp_path / "ours")
    assert "found SparseEncoder, a model of the kind sparse, expected SentenceTransformer" in line

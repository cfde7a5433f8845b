import json
import re
import shutil

import numpy as np
import pytest
import torch
import transformers

from cort.formats.shards import Tokens
from cort.models.cross_encoder import load_cross_encoder, new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder, texts_of
from cort.models.loading import load_transformer
from cort.models.rerankers import load_reranker
from cort.models.settings import EncoderSettings, PairSettings
from cort.system.errors import InputError
from tests.support.released import BERT, change_json, change_weights

WEIGHTS, TRANSFORMER, DENSE = "model.safetensors", "document_0_Transformer", "2_Dense"
LAYER = "encoder.layer.1.output.dense.weight"
ENCODER, PAIRS = EncoderSettings("mean", 8, 12, 16), PairSettings(8, 24)


def put(name, value):
    return lambda weights: weights.update({name: value})


@pytest.fixture
def encoder(make_encoder, tmp_path):
    return shutil.copytree(make_encoder(), tmp_path / "encoder")


@pytest.fixture
def reranker(make_reranker, tmp_path):
    return shutil.copytree(make_reranker(), tmp_path / "reranker")


@pytest.fixture
def base(lm, tmp_path):
    return shutil.copytree(lm, tmp_path / "base")


def refused(load, *args):
    """Load; returns the one-line complaint."""
    with pytest.raises(InputError) as caught:
        load(*args)
    line = str(caught.value)
    assert "\n" not in line
    return line


INDEX_ADDITIONS = {
    "missing": (lambda weights: weights.pop(LAYER), f"no tensor '{LAYER}', expected those of its config.json"),
    "unexpected": (put("encoder.layer.2.output.dense.weight", torch.ones(2)), "the unknown tensor 'encoder.layer.2."),
    "mis-shaped": (put(LAYER, torch.ones(32, 63)), f"{LAYER} of shape (32, 63), expected (32, 64)"),
    "not a number": (put(LAYER, torch.full((32, 64), torch.nan)), f"{LAYER}' with NaN or infinite values"),
    "whole numbers": (put(LAYER, torch.ones(32, 64, dtype=torch.int64)), f"'{LAYER}' of type I64, expected floating"),
    "infinite": (put(LAYER, torch.full((32, 64), torch.inf)), f"{LAYER}' with NaN or infinite values"),
}


KINDS = {"encoder": INDEX_ADDITIONS, "re-ranker": ("unexpected",)}
KINDS |= dict.fromkeys(("start", "base", "base of a re-ranker"), ("missing",))


@pytest.mark.parametrize(("kind", "change"), [(kind, change) for kind, changes in KINDS.items() for change in changes])
def test_weights_that_do_not_match_the_config_are_refused_by_name(request, lm, kind, change):
    folder, load = {
        "encoder": ("encoder", lambda folder: load_encoder(folder)),
        "start": ("encoder", lambda folder: new_encoder(lm, ENCODER, 3, folder)),
        "base": ("base", lambda folder: new_encoder(folder, ENCODER, 3)),
        "base of a re-ranker": ("base", lambda folder: new_cross_encoder(folder, PAIRS, 3)),
        "re-ranker": ("reranker", lambda folder: load_cross_encoder(folder)),
    }[kind]
    folder = request.getfixturevalue(folder)
    alter, words = INDEX_ADDITIONS[change]
    prefix = "bert." if kind == "re-ranker" else ""

    def altered(weights):
        plain = {name.removeprefix(prefix): value for name, value in weights.items()}
        alter(plain)
        heads = {name for name in weights if not name.startswith(prefix)}
        weights.clear()
        weights.update({name if name in heads else prefix + name: value for name, value in plain.items()})

    place = folder / TRANSFORMER if (folder / TRANSFORMER).is_dir() else folder
    change_weights(place / WEIGHTS, altered)
    line = refused(load, folder)
    assert line.startswith((f"{place}: found ", f"{folder}: found "))
    assert words in line.replace("bert.", "")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 3}, "no tensor 'encoder.layer.2.attention.output.LayerNorm.bias' and 15 more"),
        ({"num_hidden_layers": 1}, "the unknown tensor 'encoder.layer.1.attention.output.LayerNorm.bias' and 15 more"),
        ({"num_hidden_layers": 10**9}, "config.json: found num_hidden_layers 1000000000, expected a number up to 1,"),
        ({"hidden_size": 1_000_000}, "embeddings.LayerNorm.bias of shape (32,), expected (1000000,)"),
        ({"vocab_size": 10**12}, "config.json: found vocab_size 1000000000000, expected"),
        ({"layer_norm_eps": float("nan")}, "config.json: found layer_norm_eps nan, expected"),
        ({"hidden_size": "x"}, "no complete model ("),
        ({"max_position_embeddings": 0}, "config.json: found max_position_embeddings 0, expected more than 0"),
        ({"chunk_size_feed_forward": 7}, "config.json: found chunk_size_feed_forward 7, expected 0"),
        ({"pad_token_id": 500}, "no complete model ("),
        # Tensors of the same names and shapes.
        ({"model_type": "roberta"}, "the model_type roberta of a 'BertModel', expected bert"),
        ({"model_type": "roberta", "architectures": None, "num_hidden_layers": 3}, "no tensor 'encoder.layer.2."),
        ({"model_type": "nope"}, "no complete model ("),
    ],
)
def test_a_config_that_does_not_match_the_weights_is_refused(encoder, changes, words):
    change_json(encoder / TRANSFORMER / "config.json", **changes)
    line = refused(load_encoder, encoder)
    assert line.startswith(str(encoder / TRANSFORMER))
    assert words in line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"{TRANSFORMER}/config.json", content) for content in (b"", b"[" * 100_000)),
        *(("modules.json", content) for content in (b"[]", b"{")),
        *(("router_config.json", content) for content in (b"[]", b"\xff\xfe")),
    ],
)
def test_an_unreadable_file_is_named(encoder, name, content):
    (encoder / name).write_bytes(content)
    lines = f"{encoder}/{name}: found ", f"{encoder}: found no complete model ('An empty modules li"
    assert refused(load_encoder, encoder).startswith(lines)


GPT2 = transformers.GPT2Config(vocab_size=160, n_embd=32, n_layer=1, n_head=2, n_positions=48)
DECODER = transformers.BertConfig(is_decoder=True, vocab_size=160, **BERT)
T5 = transformers.T5Config(vocab_size=160, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)


@pytest.mark.parametrize(
    ("model", "config", "found"),
    [
        (transformers.GPT2Model, GPT2, "gpt2, a decoder"),
        (transformers.BertModel, DECODER, "bert, a decoder"),
        (transformers.T5Model, T5, "t5, an encoder-decoder"),
    ],
)
def test_decoders_are_refused_in_one_line(base, model, config, found):
    model(config).save_pretrained(base)
    for line in (refused(new_encoder, base, ENCODER, 3), refused(new_cross_encoder, base, PAIRS, 3)):
        assert line == f"{base}: found a {found}, expected an encoder of text like BERT; name another model"


SIZES = {"vocab_size": 160, "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
SIZES |= {"intermediate_size": 64, "max_position_embeddings": 48}


@pytest.mark.parametrize(
    "make",
    [
        lambda: transformers.BertForPreTraining(transformers.BertConfig(**SIZES)),
        lambda: transformers.BertForPreTraining(transformers.BertConfig(**SIZES)).bert,
        lambda: transformers.RobertaModel(transformers.RobertaConfig(**SIZES, pad_token_id=0)),
        lambda: transformers.RobertaModel(transformers.RobertaConfig(**SIZES, pad_token_id=0), add_pooling_layer=False),
    ],
)
def test_heads_of_a_base_model_may_be_missing_or_unused(base, make):
    made = make()
    made.save_pretrained(base)
    encoder, reranker = new_encoder(base, ENCODER, 3), new_cross_encoder(base, PAIRS, 3)
    for name, value in encoder.transformer.state_dict().items():
        assert torch.equal(value, made.base_model.state_dict()[name])
        assert torch.equal(value, reranker.transformer.base_model.state_dict()[name])


def test_a_trained_model_has_its_heads_and_no_other(encoder, reranker):
    change_weights(encoder / TRANSFORMER / WEIGHTS, put("cls.predictions.bias", torch.ones(2)))
    assert "found the unknown tensor 'cls.predictions.bias'" in refused(load_encoder, encoder)
    # In a base model, it may be unused.
    load_transformer(encoder / TRANSFORMER)
    change_weights(reranker / WEIGHTS, lambda weights: weights.pop("classifier.weight"))
    assert "found no tensor 'classifier.weight'" in refused(load_cross_encoder, reranker)


def test_a_classifier_of_several_classes_is_no_reranker(reranker):
    change_json(reranker / "config.json", id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    for name, shape in (("classifier.weight", (2, 32)), ("classifier.bias", (2,))):
        change_weights(reranker / WEIGHTS, put(name, torch.ones(shape)))
    line = refused(load_cross_encoder, reranker)
    assert line.startswith(f"{reranker}: found a classifier of 2 classes, expected one")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda weights: weights.pop("linear.bias"), "linear.bias"),
        (put("linear.bias", torch.full((8,), torch.inf)), "linear.bias' with NaN or infinite values"),
    ],
)
def test_a_projection_is_complete(encoder, lm, change, words):
    change_weights(encoder / DENSE / WEIGHTS, change)
    for line in (refused(load_encoder, encoder), refused(new_encoder, lm, ENCODER, 3, encoder)):
        assert line.startswith(f"{encoder}: found ")
        assert words in line


@pytest.mark.parametrize(
    ("name", "content"),
    [
        *((f"{part}/{WEIGHTS}", None) for part in (TRANSFORMER, "query_0_Transformer", DENSE)),
        (f"{TRANSFORMER}/{WEIGHTS}", b"half"),
    ],
)
def test_missing_and_damaged_weights_are_refused(encoder, name, content):
    (encoder / name).unlink()
    # What a pickle would do is never done.
    (encoder / name).with_name("pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")
    if content is not None:
        (encoder / name).write_bytes(content)
    assert re.match(rf"{encoder}[\w/]*: found no (complete model|safetensors weights)", refused(load_encoder, encoder))


def change_modules(folder, number, **changes):
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    modules[number] |= changes
    (folder / "modules.json").write_text(json.dumps(modules), "utf-8")


@pytest.mark.parametrize(
    ("number", "changes", "words"),
    [
        (
            1,
            {"type": "evil.Pooling"},
            "modules.json: found the module 'evil.Pooling', custom code, expected Transformer",
        ),
        (
            1,
            {"type": "sentence_transformers.base.modules.Nothing"},
            "modules.json: found the module 'sentence_transform",
        ),
        (2, {"path": "../elsewhere"}, "modules.json: found '../elsewhere' at [2].path, expected a folder beside this"),
        (2, {"path": 5}, "modules.json: found 5 at [2].path, expected a text"),
    ],
)
def test_modules_that_are_unknown_or_elsewhere_are_refused(encoder, number, changes, words):
    change_modules(encoder, number, **changes)
    assert refused(load_encoder, encoder).startswith(f"{encoder}/{words}")


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        (TRANSFORMER, {"document_length": 49}, ": passage_length: found 49, expected 3 to 48 tokens for this model"),
        (
            TRANSFORMER,
            {"transformer_task": "any-to-any"},
            f"/{TRANSFORMER}/sentence_bert_config.json: found the Transfo",
        ),
        (TRANSFORMER, {"document_length": "x"}, f"/{TRANSFORMER}/sentence_bert_config.json: found 'x' at docum"),
        ("query_0_Transformer", {"query_length": 2}, ": query_length: found 2, expected 3 to 48 tokens for this model"),
    ],
)
def test_settings_of_an_encoder_are_checked(encoder, name, changes, words):
    change_json(encoder / name / "sentence_bert_config.json", **changes)
    assert refused(load_encoder, encoder).startswith(f"{encoder}{words}")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"max_length": None}, ": found null at max_length, expected a whole number"),
        ({"query_length": 0}, ": found 0 at query_length, expected a number from 1 to 100,000"),
        ({"kind": "other"}, ": found the re-ranker 'other', expected conv_knrm or"),
        ({"word_vectors": ["new"]}, ": found "),
        ({"lenght": 5}, ": found the unknown setting 'lenght'"),
    ],
)
def test_settings_of_kernel_pooling_are_checked(make_reranker, tmp_path, changes, words):
    folder = shutil.copytree(make_reranker(kind="knrm"), tmp_path / "knrm")
    change_json(folder / "reranker.json", **changes)
    assert refused(load_reranker, folder).startswith(f"{folder}/reranker.json{words}")


def test_another_kind_of_model_and_settings_of_a_cross_encoder_are_refused(encoder, reranker):
    found = "found CrossEncoder, a model of the kind cross-encoder, expected SentenceTransformer; configure it as what"
    expected = f"{reranker}/config_sentence_transformers.json: {found}"
    assert refused(load_encoder, reranker).startswith(expected)
    change_json(reranker / "sentence_bert_config.json", query_length=49)
    line = refused(load_cross_encoder, reranker)
    assert line.startswith(f"{reranker}: query_length: found 49, expected 3 to 48 tokens for this model")


def test_a_tokenizer_beyond_the_embeddings_is_refused(encoder, reranker, base):
    for folder, load in (
        (encoder, load_encoder),
        (reranker, load_cross_encoder),
        (base, lambda folder: new_encoder(folder, ENCODER, 3)),
        (base, lambda folder: new_cross_encoder(folder, PAIRS, 3)),
    ):
        path = next(folder.rglob("tokenizer.json"))
        content = json.loads(path.read_text("utf-8"))
        content["model"]["vocab"]["zebra"] = 170
        path.write_text(json.dumps(content), "utf-8")
        expected = f"{folder}: found 171 tokens, expected at most the model's 160; use its own tokenizer"
        assert refused(load, folder) == expected


@pytest.mark.parametrize("token", [160, 2**31 - 1, -1])
def test_token_ids_beyond_the_vocabulary_are_refused(lm, token):
    encoder = new_encoder(lm, ENCODER, 3).eval()
    tokens = Tokens.of_texts([np.array([7, 8], np.int32), np.array([7, token], np.int32)])
    texts = texts_of(tokens, encoder, "passage")
    with torch.inference_mode():
        assert len(texts.encode(encoder, np.array([0]), torch.device("cpu"))) == 1
        line = refused(texts.encode, encoder, np.array([0, 1]), torch.device("cpu"))
    assert f"found the token id {token}, expected ids below the tokenizer's 160; delete it and tokenize again" in line

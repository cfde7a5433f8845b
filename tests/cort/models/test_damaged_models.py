"""Damaged models of every kind are refused: one line names the folder, or the file in it, and what was found."""

import json
import shutil

import pytest
import torch
import transformers

from cort.models.cross_encoder import CrossEncoder, new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder
from cort.models.sparse_encoder import load_sparse_encoder
from cort.models.tokenizer import load_template, load_tokenizer
from tests.support.errors import line_of
from tests.support.released import BERT, change_json, change_weights, write_json, write_modules
from tests.support.small import encoder_settings, pair_settings

WEIGHTS, CONFIG, SETTINGS, MODULES = "model.safetensors", "config.json", "sentence_bert_config.json", "modules.json"
PADDING = "tokenizer_config.json"
TRANSFORMER, QUERY, DENSE = "document_0_Transformer", "query_0_Transformer", "2_Dense"
LAYER = "encoder.layer.1.output.dense.weight"
ENCODER, PAIRS = encoder_settings("mean", 8, 12, 16), pair_settings(8, 24)

#: kind -> which folder is damaged, and how it is loaded; None: taken in by a stage
LOADS = {
    "encoder": ("encoder", lambda folder, _: load_encoder(folder)),
    "start": ("encoder", lambda folder, lm: new_encoder(lm, ENCODER, 3, folder)),
    "base": ("base", lambda folder, _: new_encoder(folder, ENCODER, 3)),
    "base of pairs": ("base", lambda folder, _: new_cross_encoder(folder, PAIRS, 3)),
    "pairs": ("pairs", lambda folder, _: CrossEncoder.load(folder)),
    "base as pairs": ("base", lambda folder, _: CrossEncoder.load(folder)),
    "encoder as pairs": ("encoder", lambda folder, _: CrossEncoder.load(folder)),
    "pairs as encoder": ("pairs", lambda folder, _: load_encoder(folder)),
    "base as sparse": ("base", lambda folder, _: load_sparse_encoder(folder)),
    "weigher": ("weigher", None),
    "tokenizer": ("base", lambda folder, _: load_template(folder)),
    "words": ("base", lambda folder, _: load_tokenizer(folder)),
}


@pytest.fixture
def folder_of(lm, make_encoder, make_reranker, tmp_path):
    """Copy a sound model."""
    named = {"base": lambda: lm, "encoder": make_encoder, "pairs": make_reranker}

    def copy(name):
        folder = shutil.copytree(named.get(name, lambda: lm)(), tmp_path / name)
        if name == "weigher":
            model = transformers.BertForTokenClassification.from_pretrained(folder, num_labels=1)
            model.save_pretrained(folder)
        return folder

    return copy


def tensors(change, place=TRANSFORMER):
    return lambda folder: change_weights(folder / place / WEIGHTS, change)


def put(name, value, place=TRANSFORMER):
    return tensors(lambda weights: weights.update({name: value}), place)


def without(name, place=TRANSFORMER):
    return tensors(lambda weights: weights.pop(name), place)


def says(name, **changes):
    return lambda folder: change_json(folder / name, **changes)


def config(**changes):
    return says(f"{TRANSFORMER}/{CONFIG}", **changes)


def holds(name, content):
    return lambda folder: (folder / name).write_bytes(content)


def pickled(name):
    """Put a pickle in the place of weights; what it would do is never done."""

    def change(folder):
        (folder / name).unlink()
        (folder / name).with_name("pytorch_model.bin").write_bytes(b"cos\nsystem\n(S'exit 1'\ntR.")

    return change


def module(number, **changes):
    def change(folder):
        modules = json.loads((folder / MODULES).read_text("utf-8"))
        modules[number] |= changes
        write_json(folder / MODULES, modules)

    return change


def several_classes(folder):
    change_json(folder / CONFIG, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1})
    put("classifier.weight", torch.ones(2, 32), "")(folder)
    put("classifier.bias", torch.ones(2), "")(folder)


def of_tokenizer(**changes):
    """Change the model of the tokenizer."""

    def change(folder):
        path = next(folder.rglob("tokenizer.json"))
        content = json.loads(path.read_text("utf-8"))
        write_json(path, content | {"model": content["model"] | changes})

    return change


def a_word_too_many(folder):
    path = next(folder.rglob("tokenizer.json"))
    of_tokenizer(vocab=json.loads(path.read_text("utf-8"))["model"]["vocab"] | {"zebra": 170})(folder)


def half_of_the_tokenizer(folder):
    path = folder / "tokenizer.json"
    path.write_bytes(path.read_bytes()[:-20])


def other(model, kind, **sizes):
    named = transformers.AutoConfig.for_model(kind, vocab_size=160, **sizes)
    return lambda folder: getattr(transformers, model)(named).save_pretrained(folder)


GPT2 = other("GPT2Model", "gpt2", n_embd=32, n_layer=1, n_head=2, n_positions=48)
DECODER = other("BertModel", "bert", is_decoder=True, **BERT)
T5 = other("T5Model", "t5", d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2)
IN, KIND = f"/{TRANSFORMER}", "/config_sentence_transformers.json"
LAYER_2, SECOND = "encoder.layer.2.attention.output.LayerNorm.bias", "encoder.layer.1.attention.output.LayerNorm.bias"
NONE = "found no complete model ("
OF_VOCABULARY = "found 171 tokens, expected at most the model's 160"

FAULTS = [
    # Weights.
    ("encoder", without(LAYER), IN, f"found no tensor '{LAYER}', expected those of its config.json"),
    ("start", without(LAYER), IN, f"found no tensor '{LAYER}'"),
    ("base", without(LAYER, ""), "", f"found no tensor '{LAYER}'"),
    ("base of pairs", without(LAYER, ""), "", f"found no tensor 'bert.{LAYER}'"),
    ("encoder", put("encoder.layer.2.x", torch.ones(2)), IN, "found the unknown tensor 'encoder.layer.2.x'"),
    ("pairs", put("bert.encoder.layer.2.x", torch.ones(2), ""), "", "found the unknown tensor 'bert.encoder.layer.2.x"),
    ("encoder", put(LAYER, torch.ones(32, 63)), IN, f"{LAYER} of shape (32, 63), expected (32, 64)"),
    ("encoder", put("cls.predictions.bias", torch.ones(2)), IN, "found the unknown tensor 'cls.predictions.bias'"),
    ("pairs", without("classifier.weight", ""), "", "found no tensor 'classifier.weight'"),
    ("pairs", several_classes, "", "found a classifier of 2 classes, expected one"),
    ("encoder, start", without("linear.bias", DENSE), "", "linear.bias"),
    *(("encoder", pickled(f"{part}/{WEIGHTS}"), f"/{part}", "found no safet") for part in (TRANSFORMER, QUERY, DENSE)),
    ("encoder", holds(f"{TRANSFORMER}/{WEIGHTS}", b"half"), IN, NONE),
    ("weigher", pickled(WEIGHTS), "", "found no safetensors weights"),
    # Configs that do not match the weights.
    ("encoder", config(num_hidden_layers=3), IN, f"found no tensor '{LAYER_2}' and 15 more"),
    ("encoder", config(num_hidden_layers=1), IN, f"found the unknown tensor '{SECOND}' and 15 more"),
    ("encoder", config(hidden_size=10**6), IN, "embeddings.LayerNorm.bias of shape (32,), expected (1000000,)"),
    ("encoder", config(hidden_size="x"), IN, NONE),
    ("encoder", config(pad_token_id=500), IN, NONE),
    # Tensors of the same names and shapes.
    ("encoder", config(model_type="roberta", architectures=None, num_hidden_layers=3), IN, "no tensor 'encoder.lay"),
    ("encoder", config(model_type="nope"), IN, NONE),
    ("base, base of pairs", GPT2, "", "found a gpt2, a decoder, expected an encoder of text like BERT"),
    ("base, base of pairs", DECODER, "", "found a bert, a decoder, expected an encoder of text like BERT"),
    ("base, base of pairs", T5, "", "found a t5, an encoder-decoder, expected an encoder of text like BERT"),
    # Another kind of model.
    ("base as pairs", lambda _: None, "", "found no tensor 'classifier.bias' and 1 more"),
    ("encoder as pairs", lambda _: None, KIND, "found SentenceTransformer, a model of the kind encoder, expected Cro"),
    ("pairs as encoder", lambda _: None, KIND, "found CrossEncoder, a model of the kind cross-encoder, expected Sent"),
    ("base as sparse", write_modules, KIND, "found SentenceTransformer, a model of the kind encoder, expected Spars"),
    # Files that cannot be read, and modules that are unknown or elsewhere.
    *(("encoder", holds(f"{TRANSFORMER}/{CONFIG}", data), f"{IN}/{CONFIG}", "found ") for data in (b"", b"[" * 10**5)),
    *(("encoder", holds("router_config.json", data), "/router_config.json", "found ") for data in (b"[]", b"\xff\xfe")),
    ("encoder", holds(MODULES, b"{"), f"/{MODULES}", "found "),
    ("encoder", holds(MODULES, b"[]"), "", "found no complete model ('An empty modules li"),
    ("encoder", module(1, type="evil.Pooling"), f"/{MODULES}", "found the module 'evil.Pooling', custom code"),
    ("encoder", module(1, type="sentence_transformers.base.modules.No"), f"/{MODULES}", "found the module 'sentence_t"),
    ("encoder", module(2, path="../elsewhere"), f"/{MODULES}", "found '../elsewhere' at [2].path, expected a folder"),
    ("encoder", module(2, path=5), f"/{MODULES}", "found 5 at [2].path, expected a valid string"),
    # Settings.
    ("encoder", says(f"{TRANSFORMER}/{SETTINGS}", document_length=49), "", "passage_length: found 49, expected 3 to"),
    ("encoder", says(f"{QUERY}/{SETTINGS}", query_length=2), "", "query_length: found 2, expected 3 to 48 tokens"),
    ("encoder", says(f"{TRANSFORMER}/{SETTINGS}", transformer_task="any-to-any"), f"{IN}/{SETTINGS}", "found the Tran"),
    ("pairs", says(SETTINGS, query_length=49), "", "query_length: found 49, expected 3 to 48 tokens for this model"),
    ("weigher", says(CONFIG, id2label={"0": "a", "1": "b"}, label2id={"a": 0, "b": 1}), "", "classifier"),
    # Tokenizers.
    ("encoder, pairs, base, base of pairs", a_word_too_many, "", OF_VOCABULARY),
    ("weigher", of_tokenizer(continuing_subword_prefix="@@"), "/tokenizer.json", "found a tokenizer of type WordPiece"),
    ("tokenizer", lambda folder: (folder / "tokenizer.json").unlink(), "", "found no tokenizer.json, expected a model"),
    ("tokenizer", holds("tokenizer.json", b""), "/tokenizer.json", "found no readable tokenizer ("),
    ("words", half_of_the_tokenizer, "/tokenizer.json", "found no readable tokenizer ("),
    *(("tokenizer", holds(PADDING, data), f"/{PADDING}", "found ") for data in (b"{", b"[]")),
    *(("tokenizer", says(PADDING, pad_token=value), f"/{PADDING}", "found ") for value in (5, {}, {"content": 5})),
    *(("tokenizer", says(PADDING, pad_token=name), f"/{PADDING}", f"the pad_token {name!r}") for name in ("<p>", None)),
]


@pytest.mark.parametrize(
    ("kind", "damage", "place", "found"), [(kind, *fault) for kinds, *fault in FAULTS for kind in kinds.split(", ")]
)
def test_a_damaged_model_is_refused_in_one_line(folder_of, lm, refused, tmp_path, kind, damage, place, found):
    name, load = LOADS[kind]
    folder, output = folder_of(name), tmp_path / "out"
    damage(folder)
    line = line_of(load, folder, lm) if load else refused("pretrained", kind=kind, pretrained=folder, output=output)
    assert line.startswith(f"{folder}{place}: ")
    assert found in line

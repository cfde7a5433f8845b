"""Released models: vectors and logits are those of sentence-transformers, and what cannot be read is said."""

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save, save_file

from cort import pretrained, tokenize
from cort.formats import tables
from cort.formats.tokens import Tokens
from cort.models.cross_encoder import Pairs, PairSettings, load_cross_encoder, new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder, texts_of
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import fingerprint
from cort.system.errors import InputError
from tests.support.common import COMMIT
from tests.support.released import (
    PROMPTS,
    change_json,
    copy_model,
    without_end,
    write_json,
    write_modules,
    write_transformer,
)

CPU = torch.device("cpu")
TOLERANCE = 1e-5
TANH, IDENTITY = "activation.Tanh", "linear.Identity"
# Longer than any limit, letters that mean a special token elsewhere, capitals.
STRANGE = ["ba " * 200, "[SEP] bako [CLS] rilu", "Ba KO ri", "x", "Bäko — rílu!"]
# As sentence-transformers names them -> what is asked of its folder.
KINDS = {
    "mean": {"length": 20},
    "mean, not normalised": {"normalize": False},
    "dot": {"normalize": False, "similarity": "dot"},
    "cls": {"pooling": "cls", "length": 16},
    "last of BERT": {"pooling": "lasttoken"},
    "E5": {"prompts": {"query": "ba ko: ", "passage": "ri lu: "}, "length": 20},
    "BGE": {"pooling": "cls", "prompts": {"query": "ba ko ri lu ne: "}},
    "Dense, tanh": {"dense": [(8, TANH, True)], "normalize": False},
    "Dense, identity, no bias": {"dense": [(8, IDENTITY, False)]},
    "two Dense": {"dense": [(64, IDENTITY, False), (8, IDENTITY, True)]},
    "two Dense, tanh": {"dense": [(24, IDENTITY, True), (8, TANH, True)], "pooling": "cls"},
}
ACTIVATIONS = {TANH: torch.tanh, IDENTITY: lambda states: states}


def options_of(kind, source, output, **changes):
    words = [str(word) for name, value in changes.items() for word in (f"--{name.replace('_', '-')}", value)]
    return ["--kind", kind, "--pretrained", str(source), "--output", str(output), *words]


def take_in(source, output, kind="encoder", **changes):
    assert pretrained.main(options_of(kind, source, output, **changes)) == 0
    return output


def tokens_of(model, texts, kind, folder):
    """Token cache of texts of a kind, as `tokenize` makes it."""
    table, cache = folder / f"{kind}.parquet", folder / f"{kind}.arrow"
    schema = tables.PASSAGES if kind == "passage" else tables.QUERIES
    ids = [str(number) for number in range(len(texts))]
    tables.write_table(table, pa.table({schema.names[0]: ids, "text": texts}, schema=schema))
    assert tokenize.main(["--tokenizer", str(model), "--texts", str(table), "--output", str(cache)]) == 0
    return Tokens(cache, fingerprint(model))


def vectors_of(model, texts, kind, folder):
    """Vectors as they are stored."""
    encoder, template = load_encoder(model)
    texts = texts_of(tokens_of(model, texts, kind, folder), template, encoder.settings, kind)
    return texts.vectors(encoder, np.arange(len(texts.tokens)), CPU).numpy()


def logits_of(model, queries, passages, folder):
    reranker, template = load_cross_encoder(model)
    caches = tokens_of(model, queries, "query", folder), tokens_of(model, passages, "passage", folder)
    rows = np.arange(len(queries))
    with torch.inference_mode():
        return Pairs(*caches, template, reranker.settings).score(reranker, rows, rows, CPU).numpy()


def states_of(folder, texts, length):
    """States of a transformers folder, and which are of real tokens."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=torch.float32)
    # Special tokens in a text are letters here.
    batch = tokenizer(
        texts, padding=True, truncation=True, max_length=length, return_tensors="pt", split_special_tokens=True
    )
    with torch.inference_mode():
        return model.eval()(**batch).last_hidden_state, batch["attention_mask"]


def known_vectors(folder, texts, kind, wanted):
    """What the modules of a folder compute, in formulas; `wanted` are the arguments of `write_modules`."""
    prompt = (wanted.get("prompts") or {}).get(kind, "")
    states, mask = states_of(folder, [prompt + text for text in texts], wanted.get("length") or 48)
    rows, last = torch.arange(len(states)), mask.sum(1) - 1
    means = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    found = {"mean": means, "cls": states[:, 0], "lasttoken": states[rows, last]}[wanted.get("pooling", "mean")]
    for number, (_, activation, bias) in enumerate(wanted.get("dense", ()), start=2):
        weights = load_file(folder / f"{number}_Dense" / "model.safetensors")
        found = found @ weights["linear.weight"].T + (weights["linear.bias"] if bias else 0)
        found = ACTIVATIONS[activation](found)
    if wanted.get("similarity") != "dot":
        found = torch.nn.functional.normalize(found, dim=-1)
    return found.numpy()


def difference(found, expected):
    """Largest difference of two arrays; of numbers above 1, relative to the largest."""
    return np.abs(found - expected).max() / max(np.abs(expected).max(), 1)


@pytest.fixture
def released(lm, tmp_path):
    """Write a folder around the world's BERT; its path."""
    torch.manual_seed(5)

    def write(name="released", **wanted):
        return write_modules(copy_model(lm, tmp_path / name), **wanted)

    return write


# Encoders: known answers.


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_what_the_modules_say(released, world, tmp_path, name):
    folder = released(**KINDS[name])
    model = take_in(folder, tmp_path / "model")
    texts = [*world.query_texts[:9], *STRANGE]
    for kind in ("query", "passage"):
        found = vectors_of(model, texts, kind, tmp_path)
        assert difference(found, known_vectors(folder, texts, kind, KINDS[name])) <= TOLERANCE


def test_a_folder_of_transformers_alone_is_taken_for_the_mean_of_all_tokens(lm, world, tmp_path):
    model = take_in(copy_model(lm, tmp_path / "plain"), tmp_path / "model")
    found = vectors_of(model, world.texts[:9], "passage", tmp_path)
    assert difference(found, known_vectors(lm, world.texts[:9], "passage", {})) <= TOLERANCE


def test_what_the_config_says_goes_first(released, world, tmp_path):
    folder = released(prompts={"query": "ba: ", "other": "ko ri: "}, length=20)
    changes = {"pooling": "cls", "query_prompt_name": "other", "passage_prompt": "lu: ", "passage_length": 9}
    model = take_in(folder, tmp_path / "model", **changes)
    settings = load_encoder(model)[0].settings
    assert (settings.pooling, settings.query_prompt, settings.passage_prompt) == ("cls", "ko ri: ", "lu: ")
    assert (settings.query_length, settings.passage_length) == (20, 9)
    wanted = {"pooling": "cls", "prompts": {"query": "ko ri: ", "passage": "lu: "}, "length": 9}
    found = vectors_of(model, world.texts[:9], "passage", tmp_path)
    assert difference(found, known_vectors(folder, world.texts[:9], "passage", wanted)) <= TOLERANCE
    off = load_encoder(take_in(folder, tmp_path / "off", query_prompt=""))[0].settings
    assert off.query_prompt == ""


def test_a_cache_of_another_prompt_is_refused(released, world, tmp_path):
    folder = released(prompts={"query": "ba: "})
    cache = tokens_of(take_in(folder, tmp_path / "one"), world.query_texts, "query", tmp_path)
    other = take_in(folder, tmp_path / "two", query_prompt="ko: ")
    with pytest.raises(Exception, match=r"query\.arrow: found tokens of tokenizer"):
        Tokens(cache.path, fingerprint(other))
    assert fingerprint(take_in(folder, tmp_path / "none", query_prompt="")) != cache.tokenizer


@pytest.mark.parametrize("kind", ["sentencepiece", "decoder"])
def test_other_tokenizers_and_models(world, tmp_path, kind):
    folder = write_transformer(tmp_path / "released", world.texts, kind)
    wanted = {"pooling": "lasttoken" if kind == "decoder" else "mean", "prompts": {"query": "ba ko: "}, "length": 30}
    model = take_in(write_modules(folder, **wanted), tmp_path / "model")
    texts = [*world.texts[:9], "ba " * 200, "Bäko — rílu!", "  ba\tko "]
    found = vectors_of(model, texts, "query", tmp_path)
    assert difference(found, known_vectors(folder, texts, "query", wanted)) <= TOLERANCE


def test_the_token_at_the_end_is_the_promised_one(world, tmp_path, complaint, capsys):
    folder = write_transformer(tmp_path / "released", world.texts, "decoder")
    write_modules(folder, pooling="lasttoken", length=12)
    texts = [*world.texts[:9], "ba", "ba " * 200]
    expected = known_vectors(folder, texts, "passage", {"pooling": "lasttoken", "length": 12})
    without_end(folder)
    model = take_in(folder, tmp_path / "model")
    assert load_encoder(model)[1].after == (0,)
    assert difference(vectors_of(model, texts, "passage", tmp_path), expected) <= TOLERANCE
    assert "puts no token at the end" not in capsys.readouterr().err
    change_json(folder / "tokenizer_config.json", add_eos_token=False)
    take_in(folder, tmp_path / "no-end")
    assert f"{folder}: its tokenizer puts no token at the end" in capsys.readouterr().err
    for changes in ({"eos_token": None}, {"add_eos_token": "true"}, {"add_bos_token": True}):
        change_json(folder / "tokenizer_config.json", **{"add_eos_token": True, **changes})
        line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m"), tmp_path / "m")
        assert line.startswith(f"{folder}/tokenizer_config.json: found ")


def test_another_token_at_the_end_than_the_promised_one(world, tmp_path, complaint):
    folder = write_modules(write_transformer(tmp_path / "released", world.texts, "sentencepiece"))
    change_json(folder / "tokenizer_config.json", add_eos_token=True, eos_token="<unk>")  # noqa: S106
    line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m"), tmp_path / "m")
    assert "add_eos_token true with the eos_token <unk>, where tokenizer.json has ['</s>']" in line


def add_special(folder, *tokens):
    """Add special tokens to a tokenizer and rows for them to the model."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    tokenizer.add_special_tokens({"additional_special_tokens": list(tokens)})
    torch.manual_seed(7)
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return tokenizer


def test_special_tokens_of_prompts_are_tokens(released, world, tmp_path):
    prompts = {"query": "<query> ", "passage": "ba<doc>"}
    folder = released(prompts=prompts)
    tokenizer = add_special(folder, "<query>", "<doc>")
    model = take_in(folder, tmp_path / "model")
    for kind, (prompt, own) in {"query": ("<query> ", "<query>"), "passage": ("ba<doc>", "<doc>")}.items():
        cache = tokens_of(model, ["ko ri", "[SEP] ko"], kind, tmp_path)
        expected = tokenizer(prompt + "ko ri", add_special_tokens=False)["input_ids"]
        assert tokenizer.convert_tokens_to_ids(own) in expected
        assert cache[0].tolist() == expected
        # In texts others are letters.
        assert tokenizer.sep_token_id not in cache[1]


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_prompt_leaves_room_for_text(released, tmp_path, complaint, kind):
    folder = released(length=20)
    asked = {f"{kind}_prompt": ". " * 10, f"{kind}_length": 15}
    line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m", **asked), tmp_path / "m")
    assert line.startswith(f"--{kind}_length: found 15, expected 16 or more with a prompt of 10 tokens, of which")
    model = take_in(folder, tmp_path / "model", **{**asked, f"{kind}_length": 16})
    change_json(model / "cort.json", **{f"{kind}_length": 12})
    with pytest.raises(InputError, match=rf"cort\.json: {kind}_length: found 12, expected 16 or more"):
        load_encoder(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_of_half_precision_are_computed_with_in_single(released, world, tmp_path, dtype):
    from transformers import AutoModel

    folder = released()
    AutoModel.from_pretrained(folder).to(dtype).save_pretrained(folder)
    found = vectors_of(take_in(folder, tmp_path / "model"), world.texts[:9], "passage", tmp_path)
    assert difference(found, known_vectors(folder, world.texts[:9], "passage", {})) <= TOLERANCE


def test_texts_in_lower_case(world, tmp_path):
    folder = write_transformer(tmp_path / "released", world.texts, "sentencepiece")
    write_modules(folder, length=30)
    change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    model = take_in(folder, tmp_path / "model")
    upper, lower = (vectors_of(model, [text], "query", tmp_path) for text in ("BA Ko ri", "ba ko ri"))
    assert np.array_equal(upper, lower)


# Re-rankers.


@pytest.fixture
def classifier(lm, tmp_path):
    """Write a classifier of some labels on the world's BERT; its path."""
    from transformers import AutoModelForSequenceClassification

    def write(labels, **changes):
        torch.manual_seed(6)
        folder = copy_model(lm, tmp_path / f"classifier{labels}")
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
        model.classifier.bias.data.normal_()
        model.save_pretrained(folder)
        change_json(folder / "config.json", **changes)
        return folder

    return write


def name_segments(folder, segments):
    """Have a tokenizer give the segments of a pair or not, as BERT's own and others do."""
    names = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
    change_json(folder / "tokenizer_config.json", model_input_names=names)


def known_logits(folder, queries, passages, relevant=1):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    batch = AutoTokenizer.from_pretrained(folder)(
        queries, passages, padding=True, truncation=True, max_length=48, return_tensors="pt"
    )
    with torch.inference_mode():
        logits = model(**batch).logits
    return (logits[:, 0] if logits.shape[1] == 1 else logits[:, relevant] - logits[:, 1 - relevant]).numpy()


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("segments", [True, False])
def test_logits_are_the_models_own(classifier, world, tmp_path, labels, segments):
    folder = classifier(labels)
    name_segments(folder, segments)
    model = take_in(folder, tmp_path / "model", "reranker")
    queries = [*world.query_texts[:12], "ba"]
    passages = [*world.texts[:12], "ba ko " * 100]
    expected = known_logits(folder, queries, passages)
    assert expected.std() > 1e-3
    assert difference(logits_of(model, queries, passages, tmp_path), expected) <= TOLERANCE


@pytest.mark.parametrize(
    ("names", "relevant"),
    [
        (("relevant", "not_relevant"), 0),
        (("Irrelevant", "Relevant"), 1),
        (("yes", "no"), 0),
        (("0", "1"), 1),
        (("NEGATIVE", "POSITIVE"), 1),
    ],
)
def test_the_logit_is_that_of_the_label_that_means_relevant(classifier, world, tmp_path, names, relevant):
    folder = classifier(2, id2label=dict(zip("01", names, strict=True)), label2id={names[0]: 0, names[1]: 1})
    model = take_in(folder, tmp_path / "model", "reranker")
    queries, passages = world.query_texts[:5], world.texts[:5]
    expected = known_logits(folder, queries, passages, relevant)
    assert difference(logits_of(model, queries, passages, tmp_path), expected) <= TOLERANCE


@pytest.mark.parametrize(
    ("labels", "changes"),
    [
        (2, {"id2label": {"0": "a", "1": "b"}}),
        (2, {"id2label": {"0": "relevant", "1": "positive"}}),
        (2, {"id2label": {"0": "relevant", "1": "LABEL_1"}}),
        (2, {"id2label": {"0": "LABEL_1", "1": "LABEL_0"}}),
        (2, {"id2label": {"1": "no", "2": "yes"}}),
        (2, {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 1, "yes": 0}}),
        (1, {"id2label": {"0": "irrelevant"}}),
    ],
)
def test_labels_that_do_not_tell_which_is_relevant(classifier, tmp_path, complaint, labels, changes):
    folder = classifier(labels, **changes)
    line = complaint(pretrained.main, options_of("reranker", folder, tmp_path / "m"), tmp_path / "m")
    assert line.startswith(f"{folder}/config.json: found labels that do not tell which means relevant")
    assert 'expected id2label such as {"0": "irrelevant", "1": "relevant"}; name them so' in line


# Starts of training.


def test_training_starts_from_all_that_was_released(released, classifier, tmp_path, complaint):
    folder = released(pooling="cls", dense=[(8, TANH, True)], prompts={"query": "ba: "})
    model = take_in(folder, tmp_path / "model")
    loaded, started = load_encoder(model)[0], new_encoder(model, EncoderSettings(), seed=9)
    assert started.settings == loaded.settings
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in started.state_dict().items())
    with pytest.raises(InputError, match=r"^--pooling: found mean, expected cls, as .*cort.json says; leave it out"):
        new_encoder(model, EncoderSettings(pooling="mean"), seed=9)
    model = take_in(classifier(2), tmp_path / "cross", "reranker")
    loaded, started = load_cross_encoder(model)[0], new_cross_encoder(model, PairSettings(), seed=9)
    assert started.settings == loaded.settings
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in started.state_dict().items())


def test_a_model_of_this_project_is_one(make_encoder, make_reranker, tmp_path):
    for kind, source in (("encoder", make_encoder()), ("reranker", make_reranker())):
        model = take_in(source, tmp_path / kind, kind, query_length=9)
        names = ["config.json", "model.safetensors", *["projection.safetensors"] * (kind == "encoder")]
        assert all((model / name).read_bytes() == (source / name).read_bytes() for name in names)
        load = load_encoder if kind == "encoder" else load_cross_encoder
        assert load(model)[0].settings.query_length == 9


def test_what_to_do_about_a_model_of_the_users_own(make_encoder, tmp_path, complaint):
    for name, content in (("cort.json", b"[]"), ("projection.safetensors", save({}))):
        folder = copy_model(make_encoder(), tmp_path / name)
        (folder / name).write_bytes(content)
        line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m"), tmp_path / "m")
        assert line.endswith("; correct it, or download or build the model again")


# In sentence-transformers.


@pytest.fixture
def peer():
    return pytest.importorskip("sentence_transformers")


def compare(peer, folder, model, texts, tmp_path, prompts=None):
    loaded = peer.SentenceTransformer(
        str(folder), device="cpu", local_files_only=True, model_kwargs={"dtype": torch.float32}
    )
    for kind in ("query", "passage"):
        unit = load_encoder(model)[0].settings.unit_length
        expected = loaded.encode(texts, prompt=(prompts or {}).get(kind, ""), normalize_embeddings=unit)
        assert difference(vectors_of(model, texts, kind, tmp_path), expected) <= TOLERANCE


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_sentence_transformers(peer, released, world, tmp_path, name):
    folder = released(**KINDS[name])
    model = take_in(folder, tmp_path / "model")
    # There a text that says [SEP] means the token.
    texts = [*world.query_texts, *world.texts[:9], "ba " * 200, "Ba KO ri", "x", ""]
    compare(peer, folder, model, texts, tmp_path, KINDS[name].get("prompts"))


@pytest.mark.parametrize("kind", ["sentencepiece", "decoder"])
def test_other_models_are_those_of_sentence_transformers(peer, world, tmp_path, kind):
    folder = write_transformer(tmp_path / "released", world.texts, kind)
    prompts = {"query": "ba ko: ", "passage": "Ri: "}
    write_modules(folder, pooling="lasttoken" if kind == "decoder" else "mean", prompts=prompts, length=30)
    if kind == "sentencepiece":
        change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    texts = [*world.texts[:20], "ba " * 200, "Bäko — rílu!", "  ba\tko ", "BA ko"]
    compare(peer, folder, take_in(folder, tmp_path / "model"), texts, tmp_path, prompts)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_that_of_sentence_transformers(peer, released, world, tmp_path, dtype):
    from transformers import AutoModel

    folder = released()
    AutoModel.from_pretrained(folder).to(dtype).save_pretrained(folder)
    compare(peer, folder, take_in(folder, tmp_path / "model"), world.texts[:20], tmp_path)


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("segments", [True, False])
def test_logits_are_those_of_sentence_transformers(peer, classifier, world, tmp_path, labels, segments):
    folder = classifier(labels)
    name_segments(folder, segments)
    loaded = peer.CrossEncoder(str(folder), device="cpu", local_files_only=True)
    queries, passages = [*world.query_texts[:12], "ba ko"], [*world.texts[:12], "ba ko " * 100]
    expected = loaded.predict(list(zip(queries, passages, strict=True)), activation_fn=torch.nn.Identity())
    expected = expected[:, 1] - expected[:, 0] if labels == 2 else expected
    model = take_in(folder, tmp_path / "model", "reranker")
    assert difference(logits_of(model, queries, passages, tmp_path), expected) <= TOLERANCE


# Bad input.


def change_modules(**changes):
    """Change the entry of Pooling in modules.json."""

    def change(folder):
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        modules[1] |= changes
        write_json(folder / "modules.json", modules)

    return change


def change_file(path, **changes):
    return lambda folder: change_json(folder / path, **changes)


def drop_entry(folder):
    modules = json.loads((folder / "modules.json").read_text("utf-8"))
    write_json(folder / "modules.json", [modules[0], *modules[2:]])


def change_weights(path, change):
    def apply(folder):
        file = folder / path / "model.safetensors"
        weights = load_file(file)
        change(weights)
        save_file(weights, file, metadata={"format": "pt"})

    return apply


def write_adapter(folder):
    write_json(folder / "adapter_config.json", {"peft_type": "LORA"})


def write_int_shards(folder):
    """Split the weights into files of other names, of whole numbers."""
    weights = load_file(folder / "model.safetensors")
    save_file({name: value.long() for name, value in weights.items()}, folder / "part.safetensors", {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}
    write_json(folder / "model.safetensors.index.json", index)


def pickle_alone(path):
    def change(folder):
        (folder / path / "model.safetensors").unlink()
        (folder / path / "pytorch_model.bin").write_bytes(b"pickle")

    return change


ST = "sentence_transformers.models"
BAD = {
    "a module of its own": (
        change_modules(type="modeling_x.Pooling"),
        "found the module 'modeling_x.Pooling', code of",
    ),
    "another package": (change_modules(type="sentence_transformers_x.models.Pooling"), "code of its own"),
    "an unknown module": (change_modules(type=f"{ST}.WeightedLayerPooling"), "found the module 'sentence_transformers"),
    "no Pooling": (drop_entry, "found the modules Transformer, Dense, Normalize, expected Transformer, Pooling, then"),
    "no such folder": (
        change_modules(path="7_Pooling"),
        "found no config.json of the module Pooling, expected what mod",
    ),
    "another folder": (
        change_modules(path="../../x"),
        "found the module Pooling in '../../x', expected a folder beside",
    ),
    "remote code": (
        change_file("config.json", auto_map={"AutoModel": "modeling.X"}),
        "found code of its own, auto_map",
    ),
    "code of a tokenizer": (change_file("tokenizer_config.json", auto_map={"AutoTokenizer": ["a.B", None]}), "a.B"),
    "pickles": (pickle_alone(""), "found no safetensors weights, expected model.safetensors"),
    "a pickled Dense": (pickle_alone("2_Dense"), "found no safetensors weights of the module Dense"),
    "an adapter": (
        write_adapter,
        "found the adapter 'adapter_config.json', expected a model whose weights are whole; merge",
    ),
    "whole numbers in a Dense": (
        change_weights(
            "2_Dense", lambda weights: weights.update({"linear.weight": torch.ones(8, 32, dtype=torch.int8)})
        ),
        "linear.weight with other than finite numbers",
    ),
    "eight bits in a Dense": (
        change_weights(
            "2_Dense", lambda weights: weights.update({"linear.bias": torch.ones(8, dtype=torch.float8_e4m3fn)})
        ),
        "linear.bias with other than finite numbers",
    ),
    "eight bits": (
        change_weights(
            "", lambda weights: weights.update({"pooler.dense.bias": torch.ones(32, dtype=torch.float8_e4m3fn)})
        ),
        "of the type F8_E4M3, expected floating point",
    ),
    "quantized": (change_file("config.json", quantization_config={"quant_method": "fp8"}), "found quantized weights"),
    "a broken Dense": (
        lambda folder: (folder / "2_Dense" / "model.safetensors").write_bytes(b""),
        "; correct it, or down",
    ),
    "heads below 0": (
        change_file("config.json", num_attention_heads=-1),
        "num_attention_heads -1, expected more than 0",
    ),
    "a length of 0": (
        change_file("tokenizer_config.json", model_max_length=0),
        "found 0 at model_max_length, expected",
    ),
    "inputs that are no list": (
        change_file("tokenizer_config.json", model_input_names="token_type_ids"),
        "found 'token_type_ids' at model_input_names, expected a list",
    ),
    "a Dense without its bias": (
        change_weights("2_Dense", lambda weights: weights.pop("linear.bias")),
        "found no tensor 'linear.bias', expected the 2 tensors",
    ),
    "a Dense with a bias too many": (
        change_file("2_Dense/config.json", bias=False),
        "the unknown tensor 'linear.bias'",
    ),
    "a Dense of another size": (
        change_file("2_Dense/config.json", out_features=9),
        "linear.bias of shape (8,), expected",
    ),
    "a Dense after another width": (
        change_file("2_Dense/config.json", in_features=31),
        "found in_features 31, expected 32",
    ),
    "no activation": (
        change_file("2_Dense/config.json", activation_function=None),
        "found null at activation_function",
    ),
    "shards of whole numbers": (write_int_shards, "of the type I64, expected floating point"),
    "a layer that no config names": (
        change_weights("", lambda weights: weights.update({"linear.weight": torch.ones(8, 32)})),
        "found the unknown tensor 'linear.weight', expected those of its config.json",
    ),
    "a length in quotes": (
        change_file("tokenizer_config.json", model_max_length="512"),
        "tokenizer_config.json: found '512' at model_max_length, expected a number; correct it, or download",
    ),
    "arguments that are none": (
        lambda folder: write_json(folder / "sentence_bert_config.json", {"model_args": "x"}),
        "found 'x' at model_args, expected an object",
    ),
    "arguments of a tokenizer": (
        lambda folder: write_json(folder / "sentence_bert_config.json", {"tokenizer_args": {"add_eos_token": True}}),
        "found tokenizer_args 'add_eos_token' of the Transformer",
    ),
    "a pooling in quotes": (
        change_file("1_Pooling/config.json", pooling_mode_cls_token="true"),  # noqa: S106
        "found 'true' at pooling_mode_cls_token, expected true or false; correct it, or download",
    ),
    "no padding token": (change_file("tokenizer_config.json", pad_token=None), "found the padding token None"),
    "pooling": (
        change_file("1_Pooling/config.json", pooling_mode="max"),
        "found the Pooling 'max', expected one of mean",
    ),
    "poolings": (change_file("1_Pooling/config.json", pooling_mode_cls_token=True), "found the Pooling 'cls, mean'"),
    "an activation": (
        change_file("2_Dense/config.json", activation_function="torch.nn.ReLU"),
        "a Dense with 'torch.nn.R",
    ),
    "a residual": (change_file("2_Dense/config.json", use_residual=True), "found a Dense beside the embedding"),
    "a similarity": (change_file(PROMPTS, similarity_fn_name="manhattan"), "found similarity_fn_name 'manhattan'"),
    "no such default": (
        change_file(PROMPTS, default_prompt_name="s2q"),
        "found default_prompt_name 's2q', expected one",
    ),
    "a task": (
        lambda folder: write_json(folder / "sentence_bert_config.json", {"transformer_task": "fill-mask"}),
        "fill",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_refused_by_its_name(released, tmp_path, complaint, name):
    folder = released(dense=[(8, TANH, True)])
    change, found = BAD[name]
    change(folder)
    line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m"), tmp_path / "m")
    assert found in line
    assert str(folder) in line


def test_a_prompt_for_an_unknown_task(released, tmp_path, complaint):
    folder = released(prompts={"query": "ba: ", "s2p": "ko: "})
    options = options_of("encoder", folder, tmp_path / "m", query_prompt_name="s2s")
    line = complaint(pretrained.main, options, tmp_path / "m")
    assert line.startswith("--query-prompt-name: found 's2s', expected a prompt of ")
    assert "query, s2p; name one" in line


def test_a_prompt_that_is_not_pooled(released, tmp_path, complaint):
    folder = released()
    change_json(folder / "1_Pooling" / "config.json", include_prompt=False)
    take_in(folder, tmp_path / "without")
    options = options_of("encoder", folder, tmp_path / "m", query_prompt="ba: ")
    assert "a Pooling without the prompt" in complaint(pretrained.main, options, tmp_path / "m")


def test_a_decoder_of_another_pooling(world, tmp_path, complaint):
    folder = write_modules(write_transformer(tmp_path / "released", world.texts, "decoder"), pooling="mean")
    line = complaint(pretrained.main, options_of("encoder", folder, tmp_path / "m"), tmp_path / "m")
    assert "found a qwen3, a decoder, expected an encoder of text like BERT" in line


def test_labels_that_order_nothing(classifier, tmp_path, complaint):
    names = {"0": "contradiction", "1": "entailment", "2": "neutral"}
    folder = classifier(3, id2label=names)
    line = complaint(pretrained.main, options_of("reranker", folder, tmp_path / "m"), tmp_path / "m")
    assert "found 3 labels (contradiction, entailment, neutral), expected 1, or 2 of which" in line


def test_an_encoder_is_no_reranker(released, lm, tmp_path, complaint):
    line = complaint(pretrained.main, options_of("reranker", released(), tmp_path / "m"), tmp_path / "m")
    assert "found the modules Transformer, Pooling, Normalize, expected Transformer" in line
    plain = copy_model(lm, tmp_path / "plain")
    change_json(plain / "config.json", num_labels=1)
    line = complaint(pretrained.main, options_of("reranker", plain, tmp_path / "m"), tmp_path / "m")
    assert "found no tensor 'classifier.bias' (2 such)" in line


@pytest.mark.parametrize("revision", [None, "main", COMMIT[:7]])
def test_a_branch_is_no_revision(tmp_path, complaint, revision):
    changes = {"revision": revision} if revision else {}
    options = options_of("encoder", "intfloat/e5-small-v2", tmp_path / "m", **changes)
    assert "name the commit to use, 40 hexadecimal digits" in complaint(pretrained.main, options, tmp_path / "m")


def test_lengths_beyond_the_model(released, tmp_path, complaint):
    options = options_of("encoder", released(), tmp_path / "m", query_length=49)
    line = complaint(pretrained.main, options, tmp_path / "m")
    assert line.startswith("--query_length: found 49, expected 3 to 48 tokens")
    options = options_of("encoder", "x", tmp_path / "m", max_length=9)
    assert complaint(pretrained.main, options).startswith("--max-length: found 9, expected none with --kind encoder")

import importlib.util
import json
import os

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save, save_file

from cort import pretrained
from cort.formats.tokens import Tokens
from cort.models.cross_encoder import PairSettings, load_cross_encoder, new_cross_encoder
from cort.models.encoder import load_encoder, new_encoder
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import fingerprint
from cort.system.errors import InputError
from tests.support import released as support

TOLERANCE = 1e-5
TANH, IDENTITY = "activation.Tanh", "linear.Identity"
#: where it is installed, sentence-transformers is asked, too
PEER = importlib.util.find_spec("sentence_transformers") is not None
# A text over any limit, special tokens spelled out, capitals.
STRANGE = ["ba " * 200, "[SEP] bako [CLS] rilu", "Ba KO ri", "x", "Bäko — rílu!"]
# Kinds of released encoders -> arguments of `write_modules`.
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


def own_vectors(model, texts, kind, folder):
    return support.vectors_of(model, support.tokens_of(folder, model, texts, kind), kind)


def own_logits(model, queries, passages, folder):
    queries = support.tokens_of(folder, model, queries, "query")
    return support.logits_of(model, queries, support.tokens_of(folder, model, passages))


def states_of(folder, texts, length):
    """Compute the states of a transformers folder, and the attention mask."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, dtype=torch.float32)
    # Special tokens in a text are ordinary letters here.
    options = {"padding": True, "truncation": True, "return_tensors": "pt", "split_special_tokens": True}
    batch = tokenizer(texts, max_length=length, **options)
    with torch.inference_mode():
        return model.eval()(**batch).last_hidden_state, batch["attention_mask"]


def known_vectors(folder, texts, kind, wanted):
    """Compute what the modules of a folder say, by formulas; `wanted` are the arguments of `write_modules`."""
    prompt = (wanted.get("prompts") or {}).get(kind, "")
    states, mask = states_of(folder, [prompt + text for text in texts], wanted.get("length") or 48)
    rows, last = torch.arange(len(states)), mask.sum(1) - 1
    means = (states * mask.unsqueeze(-1)).sum(1) / mask.sum(1, keepdim=True)
    vectors = {"mean": means, "cls": states[:, 0], "lasttoken": states[rows, last]}[wanted.get("pooling", "mean")]
    for number, (_, activation, bias) in enumerate(wanted.get("dense", ()), start=2):
        weights = load_file(folder / f"{number}_Dense" / "model.safetensors")
        vectors = vectors @ weights["linear.weight"].T + (weights["linear.bias"] if bias else 0)
        vectors = ACTIVATIONS[activation](vectors)
    if wanted.get("similarity") != "dot":
        vectors = torch.nn.functional.normalize(vectors, dim=-1)
    return vectors.numpy()


def check_close(vectors, expected):
    assert support.difference(vectors, expected) <= TOLERANCE


def check_vectors(folder, model, texts, tmp_path, wanted):
    """Compare the vectors of a model with formulas on the released folder, and with sentence-transformers."""
    for kind in ("query", "passage"):
        check_close(own_vectors(model, texts, kind, tmp_path), known_vectors(folder, texts, kind, wanted))
    if PEER:
        from sentence_transformers import SentenceTransformer

        single = {"dtype": torch.float32}
        loaded = SentenceTransformer(str(folder), device="cpu", local_files_only=True, model_kwargs=single)
        # There, "[SEP]" in a text is the token.
        texts = [*(text for text in texts if "[" not in text), ""]
        for kind in ("query", "passage"):
            prompt, unit = (wanted.get("prompts") or {}).get(kind, ""), load_encoder(model)[0].settings.unit_length
            expected = loaded.encode(texts, prompt=prompt, normalize_embeddings=unit)
            check_close(own_vectors(model, texts, kind, tmp_path), expected)


def refused(complaint, tmp_path, folder, kind="encoder", **changes):
    return complaint(pretrained.main, options_of(kind, folder, tmp_path / "m", **changes), tmp_path / "m")


@pytest.fixture
def released(lm, tmp_path):
    """Write a folder around the world's BERT; its path."""
    torch.manual_seed(5)

    def write(name="released", **wanted):
        return support.write_modules(support.copy_model(lm, tmp_path / name), **wanted)

    return write


@pytest.mark.parametrize("name", KINDS)
def test_vectors_are_those_of_the_modules(released, world, tmp_path, name):
    folder = released(**KINDS[name])
    texts = [*world.query_texts[:9], *STRANGE]
    check_vectors(folder, take_in(folder, tmp_path / "model"), texts, tmp_path, KINDS[name])


def test_a_plain_transformers_folder_is_read_with_mean_pooling(lm, world, tmp_path):
    model = take_in(support.copy_model(lm, tmp_path / "plain"), tmp_path / "model")
    vectors = own_vectors(model, world.texts[:9], "passage", tmp_path)
    check_close(vectors, known_vectors(lm, world.texts[:9], "passage", {}))


def test_options_override_the_files(released, world, tmp_path):
    folder = released(prompts={"query": "ba: ", "other": "ko ri: "}, length=20)
    changes = {"pooling": "cls", "query_prompt_name": "other", "passage_prompt": "lu: ", "passage_length": 9}
    model = take_in(folder, tmp_path / "model", **changes)
    settings = load_encoder(model)[0].settings
    assert (settings.pooling, settings.query_prompt, settings.passage_prompt) == ("cls", "ko ri: ", "lu: ")
    assert (settings.query_length, settings.passage_length) == (20, 9)
    wanted = {"pooling": "cls", "prompts": {"query": "ko ri: ", "passage": "lu: "}, "length": 9}
    vectors = own_vectors(model, world.texts[:9], "passage", tmp_path)
    check_close(vectors, known_vectors(folder, world.texts[:9], "passage", wanted))
    off = load_encoder(take_in(folder, tmp_path / "off", query_prompt=""))[0].settings
    assert off.query_prompt == ""


def test_a_cache_made_with_another_prompt_is_refused(released, world, tmp_path):
    folder = released(prompts={"query": "ba: "})
    cache = support.tokens_of(tmp_path, take_in(folder, tmp_path / "one"), world.query_texts, "query")
    other = take_in(folder, tmp_path / "two", query_prompt="ko: ")
    with pytest.raises(InputError, match=r"query\.arrow: found tokens of tokenizer"):
        Tokens(cache.path, fingerprint(other))
    assert fingerprint(take_in(folder, tmp_path / "none", query_prompt="")) != cache.tokenizer


@pytest.mark.parametrize("kind", ["sentencepiece", "decoder"])
def test_other_tokenizers_and_models(world, tmp_path, kind):
    folder = support.write_transformer(tmp_path / "released", world.texts, kind)
    prompts = {"query": "ba ko: ", "passage": "Ri: "}
    wanted = {"pooling": "lasttoken" if kind == "decoder" else "mean", "prompts": prompts, "length": 30}
    model = take_in(support.write_modules(folder, **wanted), tmp_path / "model")
    texts = [*world.texts[:9], "ba " * 200, "Bäko — rílu!", "  ba\tko ", "BA ko"]
    check_vectors(folder, model, texts, tmp_path, wanted)


def test_the_promised_end_token_is_added(world, tmp_path, complaint, capsys):
    folder = support.write_transformer(tmp_path / "released", world.texts, "decoder")
    support.write_modules(folder, pooling="lasttoken", length=12)
    texts = [*world.texts[:9], "ba", "ba " * 200]
    expected = known_vectors(folder, texts, "passage", {"pooling": "lasttoken", "length": 12})
    support.without_end(folder)
    model = take_in(folder, tmp_path / "model")
    assert load_encoder(model)[1].after == (0,)
    check_close(own_vectors(model, texts, "passage", tmp_path), expected)
    assert "appends no token" not in capsys.readouterr().err
    support.change_json(folder / "tokenizer_config.json", add_eos_token=False)
    take_in(folder, tmp_path / "no-end")
    assert f"{folder}: its tokenizer appends no token" in capsys.readouterr().err
    for changes in ({"eos_token": None}, {"add_eos_token": "true"}, {"add_bos_token": True}):
        support.change_json(folder / "tokenizer_config.json", **{"add_eos_token": True, **changes})
        assert refused(complaint, tmp_path, folder).startswith(f"{folder}/tokenizer_config.json: found ")


def test_another_end_token_than_the_promised_one_is_refused(world, tmp_path, complaint):
    folder = support.write_modules(support.write_transformer(tmp_path / "released", world.texts, "sentencepiece"))
    support.change_json(folder / "tokenizer_config.json", add_eos_token=True, eos_token="<unk>")  # noqa: S106
    expected = "add_eos_token true and eos_token <unk>, but tokenizer.json adds ['</s>']"
    assert expected in refused(complaint, tmp_path, folder)


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


def test_special_tokens_in_prompts_are_tokens(released, world, tmp_path):
    prompts = {"query": "<query> ", "passage": "ba<doc>"}
    folder = released(prompts=prompts)
    tokenizer = add_special(folder, "<query>", "<doc>")
    model = take_in(folder, tmp_path / "model")
    for kind, (prompt, own) in {"query": ("<query> ", "<query>"), "passage": ("ba<doc>", "<doc>")}.items():
        cache = support.tokens_of(tmp_path, model, ["ko ri", "[SEP] ko"], kind)
        expected = tokenizer(prompt + "ko ri", add_special_tokens=False)["input_ids"]
        assert tokenizer.convert_tokens_to_ids(own) in expected
        assert cache[0].tolist() == expected
        # Other special tokens in texts are letters.
        assert tokenizer.sep_token_id not in cache[1]


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_prompt_leaves_room_for_text(released, tmp_path, complaint, kind):
    folder = released(length=20)
    changes = {f"{kind}_prompt": ". " * 10, f"{kind}_length": 15}
    expected = f"--{kind}_length: found 15, expected 16 to 48 tokens with a prompt of 10 tokens; change the length or"
    assert refused(complaint, tmp_path, folder, **changes).startswith(expected)
    model = take_in(folder, tmp_path / "model", **{**changes, f"{kind}_length": 16})
    support.change_json(model / "cort.json", **{f"{kind}_length": 12})
    with pytest.raises(InputError, match=rf"cort\.json: {kind}_length: found 12, expected 16 to 48 tokens"):
        load_encoder(model)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_weights_are_used_in_single_precision(released, world, tmp_path, dtype):
    from transformers import AutoModel

    folder = released()
    AutoModel.from_pretrained(folder).to(dtype).save_pretrained(folder)
    check_vectors(folder, take_in(folder, tmp_path / "model"), world.texts[:9], tmp_path, {})


def test_texts_are_lowercased_if_the_files_say_so(world, tmp_path):
    folder = support.write_transformer(tmp_path / "released", world.texts, "sentencepiece")
    support.write_modules(folder, length=30)
    support.change_json(folder / "sentence_bert_config.json", do_lower_case=True)
    model = take_in(folder, tmp_path / "model")
    upper, lower = (own_vectors(model, [text], "query", tmp_path) for text in ("BA Ko ri", "ba ko ri"))
    assert np.array_equal(upper, lower)


@pytest.fixture
def classifier(lm, tmp_path):
    """Write a classifier of some labels on the world's BERT; its path."""
    from transformers import AutoModelForSequenceClassification

    def write(labels, **changes):
        torch.manual_seed(6)
        folder = support.copy_model(lm, tmp_path / f"classifier{labels}")
        model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=labels)
        model.classifier.bias.data.normal_()
        model.save_pretrained(folder)
        support.change_json(folder / "config.json", **changes)
        return folder

    return write


def name_segments(folder, segments):
    """Have a tokenizer return segment ids or not."""
    names = ["input_ids", *["token_type_ids"] * segments, "attention_mask"]
    support.change_json(folder / "tokenizer_config.json", model_input_names=names)


def known_logits(folder, queries, passages, relevant=1):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    options = {"padding": True, "truncation": True, "max_length": 48, "return_tensors": "pt"}
    batch = AutoTokenizer.from_pretrained(folder)(queries, passages, **options)
    with torch.inference_mode():
        logits = model(**batch).logits
    return (logits[:, 0] if logits.shape[1] == 1 else logits[:, relevant] - logits[:, 1 - relevant]).numpy()


@pytest.mark.parametrize("labels", [1, 2])
@pytest.mark.parametrize("segments", [True, False])
def test_logits_are_those_of_the_classifier(classifier, world, tmp_path, labels, segments):
    folder = classifier(labels)
    name_segments(folder, segments)
    model = take_in(folder, tmp_path / "model", "reranker")
    queries = [*world.query_texts[:12], "ba"]
    passages = [*world.texts[:12], "ba ko " * 100]
    expected = known_logits(folder, queries, passages)
    assert expected.std() > 1e-3
    logits = own_logits(model, queries, passages, tmp_path)
    check_close(logits, expected)
    if PEER:
        from sentence_transformers import CrossEncoder

        loaded = CrossEncoder(str(folder), device="cpu", local_files_only=True)
        theirs = loaded.predict(list(zip(queries, passages, strict=True)), activation_fn=torch.nn.Identity())
        check_close(logits, theirs[:, 1] - theirs[:, 0] if labels == 2 else theirs)


@pytest.mark.parametrize(
    ("names", "relevant"),
    [
        *((("relevant", "not_relevant"), 0), (("Irrelevant", "Relevant"), 1), (("yes", "no"), 0), (("0", "1"), 1)),
        (("NEGATIVE", "POSITIVE"), 1),
    ],
)
def test_the_logit_is_that_of_the_label_that_means_relevant(classifier, world, tmp_path, names, relevant):
    folder = classifier(2, id2label=dict(zip("01", names, strict=True)), label2id={names[0]: 0, names[1]: 1})
    model = take_in(folder, tmp_path / "model", "reranker")
    queries, passages = world.query_texts[:5], world.texts[:5]
    check_close(own_logits(model, queries, passages, tmp_path), known_logits(folder, queries, passages, relevant))


@pytest.mark.parametrize(
    ("labels", "changes"),
    [
        *((2, {"id2label": {"0": one, "1": two}}) for one, two in (("a", "b"), ("relevant", "positive"))),
        *((2, {"id2label": {"0": one, "1": two}}) for one, two in (("relevant", "LABEL_1"), ("LABEL_1", "LABEL_0"))),
        (2, {"id2label": {"1": "no", "2": "yes"}}),
        (2, {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 1, "yes": 0}}),
        (1, {"id2label": {"0": "irrelevant"}}),
    ],
)
def test_ambiguous_labels_are_refused(classifier, tmp_path, complaint, labels, changes):
    folder = classifier(labels, **changes)
    line = refused(complaint, tmp_path, folder, "reranker")
    assert line.startswith(f"{folder}/config.json: found labels that do not tell which one means relevant")
    assert 'expected id2label such as {"0": "irrelevant", "1": "relevant"}; name the labels' in line


def test_training_starts_from_all_released_weights(released, classifier, tmp_path):
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


def test_a_model_of_this_project_is_read(make_encoder, make_reranker, tmp_path):
    for kind, source in (("encoder", make_encoder()), ("reranker", make_reranker())):
        model = take_in(source, tmp_path / kind, kind, query_length=9)
        names = ["config.json", "model.safetensors", *["projection.safetensors"] * (kind == "encoder")]
        assert all((model / name).read_bytes() == (source / name).read_bytes() for name in names)
        load = load_encoder if kind == "encoder" else load_cross_encoder
        assert load(model)[0].settings.query_length == 9


def test_complaints_about_a_model_of_this_project_say_what_to_do(make_encoder, tmp_path, complaint):
    for name, content in (("cort.json", b"[]"), ("projection.safetensors", save({}))):
        folder = support.copy_model(make_encoder(), tmp_path / name)
        (folder / name).write_bytes(content)
        assert refused(complaint, tmp_path, folder).endswith("; correct it, or download or build the model again")


def edit(path, **changes):
    return lambda folder: support.change_json(folder / path, **changes)


def edit_modules(**changes):
    """Change the entry of Pooling in modules.json, or drop it."""

    def change(folder):
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        modules[1:2] = [modules[1] | changes] if changes else []
        support.write_json(folder / "modules.json", modules)

    return change


def put(path, name, value):
    """Put a tensor into the weights of a module; None removes it."""

    def change(weights):
        weights[name] = value
        if value is None:
            del weights[name]

    return lambda folder: support.change_weights(folder / path / "model.safetensors", change)


def settle(**content):
    return lambda folder: support.write_json(folder / "sentence_bert_config.json", content)


def write_integer_shards(folder):
    """Split the weights into files of other names, as integers."""
    weights = load_file(folder / "model.safetensors")
    save_file({name: value.long() for name, value in weights.items()}, folder / "part.safetensors", {"format": "pt"})
    (folder / "model.safetensors").unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}
    support.write_json(folder / "model.safetensors.index.json", index)


def adapt(folder):
    support.write_json(folder / "adapter_config.json", {"peft_type": "LORA"})


def leave_pickle(path):
    def change(folder):
        (folder / path / "model.safetensors").unlink()
        (folder / path / "pytorch_model.bin").write_bytes(b"pickle")

    return change


ST = "sentence_transformers.models"
CONFIG, TOKENIZER, POOLING, DENSE = "config.json", "tokenizer_config.json", "1_Pooling/config.json", "2_Dense"
CLS = "pooling_mode_cls_token"
INT8, FLOAT8 = torch.int8, torch.float8_e4m3fn
BAD = {
    "custom module": (edit_modules(type="modeling_x.Pooling"), "the module 'modeling_x.Pooling', custom code"),
    "another package": (edit_modules(type="sentence_transformers_x.models.Pooling"), "custom code"),
    "unknown module": (edit_modules(type=f"{ST}.WeightedLayerPooling"), "the module 'sentence_transformers"),
    "no Pooling": (edit_modules(), "the modules Transformer, Dense, Normalize, expected Transformer, Pooling, any"),
    "missing folder": (edit_modules(path="7_Pooling"), "no config.json of the module Pooling, expected the files that"),
    "folder outside": (edit_modules(path="../../x"), "the module Pooling in '../../x', expected a folder beside"),
    "remote code": (edit(CONFIG, auto_map={"AutoModel": "modeling.X"}), "custom code, auto_map"),
    "tokenizer code": (edit(TOKENIZER, auto_map={"AutoTokenizer": ["a.B", None]}), "a.B"),
    "pickle": (leave_pickle(""), "no safetensors weights, expected model.safetensors"),
    "pickled Dense": (leave_pickle(DENSE), "no safetensors weights of the module Dense"),
    "adapter": (adapt, "the adapter 'adapter_config.json', expected a model with complete weights; merge"),
    "integers in a Dense": (put(DENSE, "linear.weight", torch.ones(8, 32, dtype=INT8)), "'linear.weight' of type"),
    "8 bits in a Dense": (put(DENSE, "linear.bias", torch.ones(8, dtype=FLOAT8)), "'linear.bias' of type torch.float8"),
    "8 bits": (put("", "pooler.dense.bias", torch.ones(32, dtype=FLOAT8)), "of type F8_E4M3, expected floating point"),
    "integer shards": (write_integer_shards, "of type I64, expected floating point"),
    "quantized": (edit(CONFIG, quantization_config={"quant_method": "fp8"}), "quantized weights"),
    "empty Dense": (lambda folder: os.truncate(folder / DENSE / "model.safetensors", 0), "; correct it, or download"),
    "negative heads": (edit(CONFIG, num_attention_heads=-1), "num_attention_heads -1, expected more than 0"),
    "length 0": (edit(TOKENIZER, model_max_length=0), "0 at model_max_length, expected 1 or more"),
    "no list of inputs": (edit(TOKENIZER, model_input_names="x"), "'x' at model_input_names, expected a list"),
    "Dense without bias": (put(DENSE, "linear.bias", None), "no tensor 'linear.bias', expected the 2 tensors"),
    "Dense with bias": (edit(f"{DENSE}/config.json", bias=False), "the unknown tensor 'linear.bias'"),
    "Dense of another size": (edit(f"{DENSE}/config.json", out_features=9), "linear.bias of shape (8,), expected"),
    "Dense of another input": (edit(f"{DENSE}/config.json", in_features=31), "in_features 31, expected 32"),
    "no activation": (edit(f"{DENSE}/config.json", activation_function=None), "null at activation_function"),
    "unknown layer": (put("", "linear.weight", torch.ones(8)), "the unknown tensor 'linear.weight', expected those of"),
    "quoted length": (edit(TOKENIZER, model_max_length="512"), "'512' at model_max_length, expected a number; correct"),
    "no arguments": (settle(model_args="x"), "'x' at model_args, expected an object"),
    "tokenizer arguments": (settle(tokenizer_args={"add_eos_token": True}), "tokenizer_args 'add_eos_token' of the Tr"),
    "task": (settle(transformer_task="fill-mask"), "fill"),
    "quoted pooling": (edit(POOLING, **{CLS: "true"}), f"'true' at {CLS}, expected true or false; correct it, or down"),
    "no padding token": (edit(TOKENIZER, pad_token=None), "the pad_token None"),
    "unknown pooling": (edit(POOLING, pooling_mode="max"), "the Pooling 'max', expected one of mean"),
    "two poolings": (edit(POOLING, **{CLS: True}), "the Pooling 'cls, mean'"),
    "unknown activation": (edit(f"{DENSE}/config.json", activation_function="torch.nn.ReLU"), "a Dense with 'torch"),
    "residual": (edit(f"{DENSE}/config.json", use_residual=True), "a Dense with a residual"),
    "unknown similarity": (edit(support.PROMPTS, similarity_fn_name="manhattan"), "similarity_fn_name 'manhattan'"),
    "unknown default": (edit(support.PROMPTS, default_prompt_name="s2q"), "default_prompt_name 's2q', expected one"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_unreadable_model_is_refused(released, tmp_path, complaint, name):
    folder = released(dense=[(8, TANH, True)])
    change, found = BAD[name]
    change(folder)
    line = refused(complaint, tmp_path, folder)
    assert str(folder) in line
    assert found in line


def test_unknown_prompts_and_prompts_that_are_not_pooled_are_refused(released, tmp_path, complaint):
    folder = released(prompts={"query": "ba: ", "s2p": "ko: "})
    line = refused(complaint, tmp_path, folder, query_prompt_name="s2s")
    assert line.startswith("--query-prompt-name: found 's2s', expected a prompt of ")
    assert "query, s2p; name one" in line
    folder = released("not pooled")
    support.change_json(folder / POOLING, include_prompt=False)
    take_in(folder, tmp_path / "without")
    assert "a Pooling without the prompt" in refused(complaint, tmp_path, folder, query_prompt="ba: ")


def test_a_decoder_needs_last_token_pooling(world, tmp_path, complaint):
    folder = support.write_transformer(tmp_path / "released", world.texts, "decoder")
    support.write_modules(folder, pooling="mean")
    expected = "found a qwen3, a decoder, expected an encoder of text like BERT"
    assert expected in refused(complaint, tmp_path, folder)


def test_an_encoder_or_a_classifier_of_inferences_is_no_reranker(released, classifier, lm, tmp_path, complaint):
    folder = classifier(3, id2label={"0": "contradiction", "1": "entailment", "2": "neutral"})
    expected = "found 3 labels (contradiction, entailment, neutral), expected 1, or 2 of which"
    assert expected in refused(complaint, tmp_path, folder, "reranker")
    expected = "found the modules Transformer, Pooling, Normalize, expected Transformer"
    assert expected in refused(complaint, tmp_path, released(), "reranker")
    plain = support.copy_model(lm, tmp_path / "plain")
    support.change_json(plain / CONFIG, num_labels=1)
    assert "found no tensor 'classifier.bias' and 1 more" in refused(complaint, tmp_path, plain, "reranker")


def test_lengths_beyond_the_model_or_of_another_kind_are_refused(released, tmp_path, complaint):
    line = refused(complaint, tmp_path, released(), query_length=49)
    assert line.startswith("--query_length: found 49, expected 3 to 48 tokens")
    line = refused(complaint, tmp_path, "x", max_length=9)
    assert line.startswith("--max-length: found 9, expected none with --kind encoder")

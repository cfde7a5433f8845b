import itertools
import json

import numpy as np
import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling

from cort.formats.shards import Tokens
from cort.models.cross_encoder import PairSettings
from cort.models.encoder import load_encoder, new_encoder
from cort.models.light import static_encoder
from cort.models.rerankers import load_reranker, new_reranker
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import fingerprint
from cort.runtime.errors import InputError
from tests.support import released as support
from tests.support.layouts import CONFIG, LAYOUTS, LIGHT, MODERN, POOLING, SINGLE, TOKENIZER, WEIGHTS, Maker, take_in
from tests.support.released import change_json, change_weights, copy_model, difference, write_json
from tests.support.small import encoder_settings

TOLERANCE = 1e-5


def own_vectors(model, texts, kind, folder):
    return support.vectors_of(model, support.tokens_of(folder, model, texts, kind), kind)


def their_vectors(folder, texts, kind, unit, **options):
    model = SentenceTransformer(str(folder), device="cpu", local_files_only=True, **options).float()
    encode = model.encode_query if kind == "query" else model.encode_document
    # It takes an empty prompt "document", which it adds itself, for the first that there is.
    other = "passage" if kind == "passage" and model.prompts.get("passage") else None
    return encode(texts, normalize_embeddings=unit, prompt_name=other)


def own_logits(model, queries, passages, folder):
    queries = support.tokens_of(folder, model, queries, "query")
    return support.logits_of(model, queries, support.tokens_of(folder, model, passages))


def check_close(vectors, expected):
    assert vectors.shape == expected.shape
    assert difference(vectors, expected) <= TOLERANCE


def check_vectors(source, model, world, folder, **options):
    """Compare our vectors with those of the original folder and of the saved one in sentence-transformers."""
    texts = [*world.texts[:6], "ba " * 200, " ".join(world.texts), "x", "Bäko — rílu!", "  BA\tKo "]
    unit = load_encoder(model).unit_length
    for kind in ("query", "passage"):
        vectors = own_vectors(model, texts, kind, folder)
        assert vectors.std(0).max() > 1e-3
        check_close(vectors, their_vectors(source, texts, kind, unit, **options))
        check_close(vectors, their_vectors(model, texts, kind, unit))


@pytest.fixture
def refuse(refused, tmp_path):
    """Take in a model that must be refused; the one-line complaint."""

    def run(folder, kind="dense", **changes):
        return refused("pretrained", kind=kind, pretrained=folder, output=tmp_path / "m", **changes)

    return run


@pytest.fixture
def make(world, lm, tmp_path):
    torch.manual_seed(5)
    return Maker(tmp_path / "released", world, lm)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_vectors_are_those_of_sentence_transformers(make, world, tmp_path, layout):
    reference = LAYOUTS[layout](make)
    source = reference if layout == "add_eos_token" else make.folder
    model = take_in(make.folder, tmp_path / "model")
    check_vectors(source, model, world, tmp_path)
    assert (static_encoder(model) is not None) == (layout in LIGHT)


def types_in(folder):
    types = set()
    for path in folder.rglob("*.safetensors"):
        with safe_open(path, "pt") as file:
            types |= {file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - no mapping
    return types


@pytest.mark.parametrize(("layout", "kept"), [("bf16", "BF16"), ("model2vec", "F16"), ("BERT", "F32")])
def test_weights_keep_their_precision(make, tmp_path, layout, kept):
    LAYOUTS[layout](make)
    assert types_in(take_in(make.folder, tmp_path / "model")) == {kept}


@pytest.mark.parametrize("layout", ["BERT, inner product, tanh", "static, prompts, inner product", "Router"])
def test_the_dimension_truncates_before_normalization(make, world, tmp_path, layout):
    LAYOUTS[layout](make)
    model = take_in(make.folder, tmp_path / "model", dimension=5)
    assert load_encoder(model).dimension == 5
    check_vectors(make.folder, model, world, tmp_path, truncate_dim=5)


def test_options_override_the_files(make, world, tmp_path):
    make.save(make.bert(), prompts={"query": "ba: ", "other": "ko ri: "})
    changes = {"pooling": "cls", "query_prompt_name": "other", "passage_prompt": "lu: ", "passage_length": 9}
    model = take_in(make.folder, tmp_path / "model", similarity="inner_product", **changes)
    encoder = load_encoder(model)
    assert [framing.length for framing in encoder.framings.values()] == [20, 9]
    assert (encoder.similarity, encoder.unit_length) == ("inner_product", False)
    expected = SentenceTransformer(modules=[make.bert(), Pooling(32, "cls")], device="cpu")
    texts = [*world.texts[:5], "ba " * 200]
    check_close(own_vectors(model, texts, "query", tmp_path), expected.encode(texts, prompt="ko ri: "))
    expected[0].max_seq_length = 9
    check_close(own_vectors(model, texts, "passage", tmp_path), expected.encode(texts, prompt="lu: "))
    off = take_in(make.folder, tmp_path / "off", query_prompt="")
    check_close(own_vectors(off, texts, "query", tmp_path), their_vectors(make.folder, texts, "passage", True))


def test_a_model_does_not_need_the_attention_that_it_was_released_with(make, world, tmp_path):
    make.save(make.bert())
    expected = own_vectors(take_in(make.folder, tmp_path / "one"), world.texts[:5], "query", tmp_path)
    wanted = {"attn_implementation": "flash_attention_2"}
    for file, changes in ((CONFIG, wanted), ("sentence_bert_config.json", {"model_kwargs": wanted})):
        folder = copy_model(make.folder, tmp_path / f"released {file}")
        change_json(folder / file, **changes)
        model = take_in(folder, tmp_path / file)
        assert np.array_equal(own_vectors(model, world.texts[:5], "query", tmp_path), expected)
    base = copy_model(make.lm, tmp_path / "base")
    change_json(base / CONFIG, **wanted)
    assert new_encoder(base, encoder_settings("mean", 8, 12, 16), 1).transformer.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    ("first", "pooling", "own"),
    [("bert", "mean", True), ("bert", "cls", False), ("sentencepiece", "mean", False), ("sentencepiece", "cls", True)],
)
def test_a_pooling_may_leave_out_the_prompt(make, world, tmp_path, first, pooling, own):
    module = make.bert() if first == "bert" else make.other(first)
    prompts = {"query": "ba ko: ", "passage": "ri lu: "}
    make.save(module, pooling=pooling, prompts=prompts if own else {})
    change_json(make.folder / POOLING, include_prompt=False)
    changes = {} if own else {f"{kind}_prompt": prompt for kind, prompt in prompts.items()}
    model, texts = take_in(make.folder, tmp_path / "model", **changes), [*world.texts[:5], "ba " * 200, ""]
    theirs = SentenceTransformer(str(make.folder), device="cpu", local_files_only=True)
    for kind, prompt in prompts.items():
        vectors = own_vectors(model, texts, kind, tmp_path)
        check_close(vectors, theirs.encode(texts, prompt=prompt))
        check_close(vectors, their_vectors(model, texts, kind, unit=True))
        theirs[1].include_prompt = True
        assert difference(theirs.encode(texts, prompt=prompt), vectors) > 0.01
        theirs[1].include_prompt = False


def test_a_cache_made_with_another_prompt_is_refused(make, world, tmp_path):
    make.save(make.bert(), prompts={"query": "ba: "})
    cache = support.tokens_of(tmp_path, take_in(make.folder, tmp_path / "one"), world.query_texts, "query")
    other = take_in(make.folder, tmp_path / "two", query_prompt="ko: ")
    with pytest.raises(InputError, match=r"query\.arrow: found tokens of tokenizer"):
        Tokens(cache.path, fingerprint(other))
    assert fingerprint(take_in(make.folder, tmp_path / "none", query_prompt="")) != cache.tokenizer


def test_special_tokens_are_tokens_in_prompts_alone(make, tmp_path):
    module = make.bert()
    module.tokenizer.add_special_tokens({"additional_special_tokens": ["<query>"]})
    module.model.resize_token_embeddings(len(module.tokenizer), mean_resizing=False)
    make.save(module, prompts={"query": "<query> "})
    model = take_in(make.folder, tmp_path / "model")
    cache = support.tokens_of(tmp_path, model, ["ko ri", "[SEP] ko"], "query")
    assert cache[0].tolist() == module.tokenizer("<query> ko ri", add_special_tokens=False)["input_ids"]
    assert module.tokenizer.convert_tokens_to_ids("<query>") in cache[0]
    assert module.tokenizer.sep_token_id not in cache[1]


def test_the_promised_end_token_is_added(make, tmp_path, refuse, capsys):
    make.end_by_flag()
    assert len(load_encoder(take_in(make.folder, tmp_path / "model")).framings["query"].template.after) == 1
    assert "appends no token" not in capsys.readouterr().err
    change_json(make.folder / TOKENIZER, add_eos_token=False)
    take_in(make.folder, tmp_path / "no-end")
    assert f"{make.folder}: its tokenizer appends no token" in capsys.readouterr().err
    for changes in ({"eos_token": None}, {"add_eos_token": "true"}, {"add_bos_token": True}):
        change_json(make.folder / TOKENIZER, **{"add_eos_token": True, **changes})
        assert refuse(make.folder).startswith(f"{make.folder}/tokenizer_config.json: found ")


@pytest.mark.parametrize("kind", ["query", "passage"])
def test_a_prompt_leaves_room_for_text(make, tmp_path, refuse, kind):
    make.save(make.bert())
    changes = {f"{kind}_prompt": ". " * 10, f"{kind}_length": 15}
    expected = f"--{kind}_length: found 15, expected 16 to 48 tokens with a prompt of 10 tokens"
    assert refuse(make.folder, **changes).startswith(expected)
    take_in(make.folder, tmp_path / "model", **{**changes, f"{kind}_length": 16})


def write_classifier(make, labels, model="bert", **changes):
    """Write a classifier of some labels."""
    torch.manual_seed(6)
    head = "AutoModelForSequenceClassification"
    if model == "bert":
        classifier = getattr(transformers, head).from_pretrained(make.lm, num_labels=labels)
        classifier.classifier.bias.data.normal_()
        classifier.save_pretrained(copy_model(make.lm, make.folder))
    elif model == "modernbert":
        support.write_like(make.folder, make.lm, model, head, num_labels=labels, **MODERN)
    else:
        support.write_transformer(make.folder, make.world.texts, model, head, labels)
    change_json(make.folder / CONFIG, **changes)
    return make.folder


def pairs_of(world):
    return list(zip([*world.query_texts[:8], "ba"], [*world.texts[:8], "ba ko " * 100], strict=True))


def check_logits(folder, model, pairs, tmp_path):
    """Compare logits with those of the original folder and of the saved one in sentence-transformers."""
    logits = own_logits(model, *map(list, zip(*pairs, strict=True)), tmp_path)
    for source in (folder, model):
        peer = CrossEncoder(str(source), device="cpu", local_files_only=True, model_kwargs=SINGLE)
        theirs = peer.predict(pairs, activation_fn=torch.nn.Identity())
        expected = theirs[:, 1] - theirs[:, 0] if theirs.ndim == 2 else theirs
        assert expected.std() > 1e-3
        check_close(logits, expected)


@pytest.mark.parametrize(
    ("model", "labels"), [("bert", 1), ("bert", 2), ("modernbert", 1), ("sentencepiece", 2), ("decoder", 1)]
)
def test_logits_are_those_of_sentence_transformers(make, world, tmp_path, labels, model):
    folder = write_classifier(make, labels, model)
    check_logits(folder, take_in(folder, tmp_path / "model", "cross_encoder"), pairs_of(world), tmp_path)


@pytest.mark.parametrize("model", ["bert", "sentencepiece", "decoder"])
def test_pairs_are_truncated_as_in_sentence_transformers(make, world, tmp_path, model):
    folder = write_classifier(make, 1, model)
    words = " ".join(world.texts).split()
    # Pairs that fit, of which one text fills less than half of the length, and two that do.
    texts = [" ".join(words[at : at + length]) for at, length in enumerate([0, 1, 5, 15, 18, *range(20, 25), 33, 70])]
    pairs = list(itertools.product(texts, texts))
    check_logits(folder, take_in(folder, tmp_path / "model", "cross_encoder"), pairs, tmp_path)


def test_a_reranker_that_frames_pairs_in_its_own_way_is_refused(make, refuse):
    folder = write_classifier(make, 1)
    change_json(folder / TOKENIZER, truncation_side="left")
    assert "found a tokenizer that frames or truncates pairs" in refuse(folder, "cross_encoder")


@pytest.mark.parametrize("segments", [True, False])
def test_the_tokenizer_says_whether_there_are_segments(make, world, tmp_path, segments):
    folder = write_classifier(make, 1)
    change_json(folder / TOKENIZER, model_input_names=["input_ids", *["token_type_ids"] * segments, "attention_mask"])
    check_logits(folder, take_in(folder, tmp_path / "model", "cross_encoder"), pairs_of(world), tmp_path)


def test_the_logit_is_that_of_the_label_that_means_relevant(make, world, tmp_path):
    folder, pairs = write_classifier(make, 2), pairs_of(world)
    peer = CrossEncoder(str(folder), device="cpu", local_files_only=True, model_kwargs=SINGLE)
    theirs = peer.predict(pairs, activation_fn=torch.nn.Identity())
    for names, relevant in (
        *((("relevant", "not_relevant"), 0), (("Irrelevant", "Relevant"), 1), (("yes", "no"), 0), (("0", "1"), 1)),
        (("NEGATIVE", "POSITIVE"), 1),
    ):
        named = {"id2label": dict(zip("01", names, strict=True)), "label2id": {names[0]: 0, names[1]: 1}}
        change_json(folder / CONFIG, **named)
        model = take_in(folder, tmp_path / names[0], "cross_encoder")
        logits = own_logits(model, *map(list, zip(*pairs, strict=True)), tmp_path)
        check_close(logits, theirs[:, relevant] - theirs[:, 1 - relevant])


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
def test_ambiguous_labels_are_refused(make, refuse, labels, changes):
    folder = write_classifier(make, labels, **changes)
    line = refuse(folder, "cross_encoder")
    assert line.startswith(f"{folder}/config.json: found labels that do not tell which one means relevant")


def check_started(loaded, started):
    assert all(torch.equal(value, loaded.state_dict()[name]) for name, value in started.state_dict().items())
    assert started.framings == loaded.framings


def test_training_starts_from_all_released_weights(make, tmp_path):
    make.save(make.bert(), pooling="cls", dense=[(8, torch.nn.Tanh())], prompts={"query": "ba: "})
    model = take_in(make.folder, tmp_path / "model")
    check_started(load_encoder(model), new_encoder(model, EncoderSettings(), seed=9))
    make.folder = tmp_path / "classifier"
    model = take_in(write_classifier(make, 2), tmp_path / "cross", "cross_encoder")
    check_started(load_reranker(model), new_reranker(model, PairSettings(), seed=9))


def test_static_embeddings_are_not_trained(make):
    make.static()
    with pytest.raises(InputError, match="found static embeddings, expected a transformer to train"):
        new_encoder(make.folder, EncoderSettings(), 1)


def test_a_model_of_this_project_is_read(make_encoder, make_reranker, world, tmp_path):
    source = make_encoder()
    model = take_in(source, tmp_path / "encoder")
    check_close(*(own_vectors(folder, world.texts[:9], "query", tmp_path) for folder in (model, source)))
    source = make_reranker()
    model = take_in(source, tmp_path / "reranker", "cross_encoder")
    pairs = world.query_texts[:9], world.texts[:9]
    check_close(*(own_logits(folder, *pairs, tmp_path) for folder in (model, source)))


def edit(file, /, **changes):
    return lambda folder: write_json(folder / file, json.loads((folder / file).read_text("utf-8")) | changes)


def edit_pooling(**changes):
    """Change the entry of Pooling in modules.json."""

    def change(folder):
        modules = json.loads((folder / "modules.json").read_text("utf-8"))
        modules[1] |= changes
        write_json(folder / "modules.json", modules)

    return change


def leave_pickle(folder):
    (folder / DENSE / WEIGHTS).unlink()
    (folder / DENSE / "pytorch_model.bin").write_bytes(b"pickle")


def put(path, name, value):
    """Put a tensor into the weights of a module."""
    return lambda folder: change_weights(folder / path / WEIGHTS, lambda weights: weights.update({name: value}))


def write_shards(folder, types=None, both=False):
    """Split the weights into files of other names, perhaps converted, perhaps beside the single one."""
    weights = load_file(folder / WEIGHTS)
    save_file({name: value.to(types) for name, value in weights.items()}, folder / "part.safetensors", {"format": "pt"})
    if not both:
        (folder / WEIGHTS).unlink()
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, "part.safetensors")}
    write_json(folder / f"{WEIGHTS}.index.json", index)


DENSE, SETTINGS = "2_Dense", "sentence_bert_config.json"
#: change of a folder of BERT, Pooling, Dense, Normalize -> what the complaint names
BAD = {
    "LSTM": (edit_pooling(type="sentence_transformers.models.LSTM"), "the module 'sentence_transformers.models.LSTM'"),
    "code of an unknown type": (edit(CONFIG, auto_map={"AutoModel": "modeling.X"}, model_type="x"), "auto_map"),
    "pickled Dense": (leave_pickle, "no safetensors weights of the module Dense"),
    "adapter": (
        lambda folder: write_json(folder / "adapter_config.json", {"peft_type": "LORA"}),
        "no base_model_name_or_path, expected the model it was trained on",
    ),
    "quantized": (edit(CONFIG, quantization_config={"quant_method": "fp8"}), "quantized weights"),
    "Dense with bias": (edit(f"{DENSE}/config.json", bias=False), "linear.bias"),
    "Dense of another size": (edit(f"{DENSE}/config.json", out_features=9), "linear."),
    "left": (edit(TOKENIZER, truncation_side="left"), "a tokenizer that frames or truncates query texts"),
    "no padding token": (edit(TOKENIZER, pad_token=None), "pad_token"),
    "argument": (edit(SETTINGS, model_args={"subfolder": ".."}), "model_args 'subfolder' of the Transformer"),
    "another tokenizer": (edit(SETTINGS, tokenizer_name_or_path="../other"), "tokenizer_name_or_path of the Tr"),
    "weights elsewhere": (edit(f"{DENSE}/{CONFIG}", path="../idf.json"), "weights in '../idf.json'"),
    "encoder-decoder": (edit(CONFIG, model_type="bart", architectures=["BartModel"]), "a bart, an encoder-decoder"),
    "unknown pooling": (edit(POOLING, pooling_mode="median"), "median"),
    "unknown similarity": (edit(support.PROMPTS, similarity_fn_name="manhattan"), "similarity_fn_name 'manhattan'"),
    "unknown default": (edit(support.PROMPTS, default_prompt_name="s2q"), "s2q"),
    "late": (edit(support.PROMPTS, model_type="MultiVectorEncoder"), "kind late-interaction, expected SentenceTransf"),
    "ColBERT": (edit(support.PROMPTS, model_type="ColBERT"), "expected SentenceTransformer"),
}


@pytest.mark.parametrize("name", BAD)
def test_an_unreadable_model_is_refused(make, refuse, name):
    make.save(make.bert(), dense=[(8, torch.nn.Tanh())], prompts={"query": "ba: "}, unit=False)
    change, found = BAD[name]
    change(make.folder)
    line = refuse(make.folder)
    assert str(make.folder) in line
    assert found in line


def test_what_a_model_does_not_have_is_refused(make, refuse):
    make.save(make.bert(), prompts={"query": "ba: ", "s2p": "ko: "})
    for folder, changes, found in (
        (make.folder, {"query_prompt_name": "s2s"}, "--query-prompt-name: found 's2s', expected a prompt of "),
        (make.folder, {"dimension": 33}, "--dimension: found 33, expected at most the model's 32"),
        (make.folder, {"query_length": 49}, "--query-length: found 49, expected 3 to 48 tokens"),
        ("x", {"max_length": 9}, "--max-length: found 9, expected none with --kind dense"),
    ):
        assert refuse(folder, **changes).startswith(found)
    assert "query, s2p" in refuse(make.folder, query_prompt_name="s2s")


def test_the_first_token_of_a_decoder_is_not_pooled(make, tmp_path, refuse):
    make.save(make.other("decoder"), pooling="cls")
    for changes in ({}, {"pooling": "cls"}):
        assert "found the pooling cls of a decoder" in refuse(make.folder, **changes)
    take_in(make.folder, tmp_path / "model", pooling="last")


def test_an_encoder_or_a_classifier_of_inferences_is_no_reranker(make, tmp_path, refuse):
    folder = write_classifier(make, 3, id2label={"0": "contradiction", "1": "entailment", "2": "neutral"})
    assert "found 3 labels (contradiction, entailment, neutral), expected 1, or 2" in refuse(folder, "cross_encoder")
    make.folder = tmp_path / "encoder"
    make.save(make.bert())
    expected = "found SentenceTransformer, a model of the kind encoder, expected CrossEncoder"
    assert expected in refuse(make.folder, "cross_encoder")
    plain = copy_model(make.lm, tmp_path / "plain")
    change_json(plain / CONFIG, num_labels=1)
    assert "found no tensor 'classifier.bias' and 1 more" in refuse(plain, "cross_encoder")

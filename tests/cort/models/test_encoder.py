import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from cort.formats.tokens import Tokens
from cort.models.batching import frame_text, pad
from cort.models.cross_encoder import PairSettings, new_cross_encoder
from cort.models.encoder import (
    EncoderSettings,
    Texts,
    load_encoder,
    mean_pool,
    new_encoder,
    save_encoder,
    texts_of,
)
from cort.models.loading import load_transformer
from cort.models.tokenizer import load_template
from cort.models.transformer import model_fingerprint, most_tokens
from cort.system.errors import InputError

CPU = torch.device("cpu")
MEAN = EncoderSettings("mean", 8, 12, 16)

# From scratch, in the words of each configuration; the last number is how many tokens its 48 positions allow.
DISTILBERT = {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 64}
BERT_ONLY = ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size")
MODELS = {
    "bert": ({}, 48),
    "albert": ({"embedding_size": 20}, 48),
    "electra": ({"embedding_size": 20}, 48),
    "roberta": ({}, 47),
    "roberta, one segment": ({"model_type": "roberta", "type_vocab_size": 1}, 47),
    "xlm-roberta": ({}, 47),
    "distilbert": ({**dict.fromkeys(BERT_ONLY), **DISTILBERT}, 48),
    "mpnet": ({}, 46),
}


@pytest.fixture(scope="module", params=list(MODELS))
def model_type(request, make_base_model):
    """Folder of a tiny model of each type, and its longest input."""
    settings, longest = MODELS[request.param]
    return make_base_model(**{"model_type": request.param, **settings}), longest


def encode(encoder, template, frames):
    with torch.inference_mode():
        return encoder(pad(frames, template.pad))


def all_texts(caches, template, kind="passage", limit=16):
    return Texts(Tokens(caches["passages"]), template, limit, getattr(MEAN, f"{kind}_segment"))


def test_mean_pooling_is_the_mean_of_the_real_tokens():
    states = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert torch.equal(mean_pool(states, mask)[0], (states[0, 0] + states[0, 1] + states[0, 2]) / 3)
    assert torch.equal(mean_pool(states, mask)[1], (states[1, 0] + states[1, 1]) / 2)
    assert mean_pool(states.bfloat16(), mask).dtype == torch.float32


def test_the_encoder_is_pooling_projection_and_tanh(lm, caches):
    from transformers import AutoModel

    transformer, template = AutoModel.from_pretrained(lm).eval(), load_template(lm)
    batch = pad([frame_text(Tokens(caches["passages"])[row], template, 16, 1) for row in range(4)], template.pad)
    for pooling in ("cls", "mean"):
        encoder = new_encoder(lm, EncoderSettings(pooling, 8, 12, 16), 3).eval()
        with torch.inference_mode():
            states = transformer(**batch).last_hidden_state
            mask = batch["attention_mask"].unsqueeze(-1)
            pooled = states[:, 0] if pooling == "cls" else (states * mask).sum(1) / mask.sum(1)
            expected = torch.tanh(pooled @ encoder.projection.weight.T + encoder.projection.bias)
            assert torch.allclose(encoder(batch), expected, atol=1e-6)
        assert expected.shape == (4, 8)


def test_the_projection_is_drawn_from_the_seed(lm):
    one, same, other = (new_encoder(lm, MEAN, seed).projection.weight for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_padding_changes_nothing(model_type, caches, pooling):
    folder, longest = model_type
    encoder, template = new_encoder(folder, EncoderSettings(pooling, 8, 12, 16), 3).eval(), load_template(folder)
    frames = [frame_text(Tokens(caches["passages"])[row], template, longest, 0) for row in range(10)]
    assert len({len(ids) for ids, _ in frames}) > 3
    together = encode(encoder, template, frames)
    alone = torch.cat([encode(encoder, template, [frame]) for frame in frames])
    assert torch.allclose(together, alone, atol=1e-6)
    assert together.std(0).min() > 0.01


def test_every_type_takes_its_longest_input_and_no_longer(model_type):
    folder, longest = model_type
    assert most_tokens(load_transformer(folder)) == longest
    template = load_template(folder)
    frame = frame_text(np.full(60, 7, dtype=np.int32), template, longest, 0)
    assert len(frame[0]) == longest
    encoder = new_encoder(folder, EncoderSettings("cls", 8, longest, longest), 3).eval()
    assert torch.isfinite(encode(encoder, template, [frame])).all()
    reranker = new_cross_encoder(folder, PairSettings(12, longest), 3).eval()
    assert torch.isfinite(encode(reranker, template, [frame])).all()
    for query_length, passage_length in ((longest + 1, 12), (12, longest + 1)):
        with pytest.raises(InputError, match=f"_length: found {longest + 1}, expected 3 to {longest} tokens for this"):
            new_encoder(folder, EncoderSettings("cls", 8, query_length, passage_length), 3)
    with pytest.raises(InputError, match=f"max_length: found {longest + 1}, expected 14 to {longest} tokens for this"):
        new_cross_encoder(folder, PairSettings(12, longest + 1), 3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_every_type_takes_half_precision_up_to_what_follows_the_transformer(model_type, precision):
    folder, _ = model_type
    template, half = load_template(folder), {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    frames = [frame_text(np.full(length, 7, dtype=np.int32), template, 16, 0) for length in (3, 9, 12)]
    made = {
        "mean": new_encoder(folder, MEAN, 3),
        "cls": new_encoder(folder, replace(MEAN, pooling="cls"), 3),
        "re-ranker": new_cross_encoder(folder, PairSettings(12, 16), 3),
    }
    for name, model in made.items():
        single = encode(model.eval(), template, frames)
        model.place(CPU, precision)
        rounded = encode(model, template, frames)
        assert half in {weight.dtype for weight in model.parameters()}, name
        assert torch.allclose(single, rounded, atol=0.05), name
        # Rounded to half precision at the end, too, they would be equal.
        assert not torch.equal(rounded, rounded.to(half).float()), name


def test_every_type_trains_saves_and_loads(model_type, tmp_path, caches):
    folder, _ = model_type
    encoder, template = new_encoder(folder, MEAN, 3).eval(), load_template(folder)
    texts = all_texts(caches, template)
    vectors = texts.encode(encoder, np.arange(10), CPU, 64)
    vectors.sum().backward()
    without = [name for name, weight in encoder.named_parameters() if weight.grad is None]
    assert without == []
    save_encoder(encoder, folder, tmp_path / "e")
    loaded, loaded_template = load_encoder(tmp_path / "e")
    assert loaded_template == template
    assert not loaded.training
    before, after = encoder.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.inference_mode():
        # Not equal to the last bit: weights mapped from a file are aligned otherwise in memory.
        assert torch.allclose(texts.encode(loaded, np.arange(10), CPU, 64), vectors, atol=1e-6)
        again, _ = load_encoder(tmp_path / "e")
        assert torch.equal(*(texts.encode(other, np.arange(10), CPU, 64) for other in (loaded, again)))


def test_segments_tell_query_and_passage_apart_where_the_model_has_two(model_type, caches):
    folder, _ = model_type
    encoder, template = new_encoder(folder, MEAN, 3).eval(), load_template(folder)
    with torch.inference_mode():
        as_passage, as_query = (
            all_texts(caches, template, kind).encode(encoder, np.arange(5), CPU, 640) for kind in ("passage", "query")
        )
    config = encoder.transformer.config
    two = config.model_type not in ("distilbert", "mpnet") and config.type_vocab_size > 1
    assert torch.equal(as_passage, as_query) == (not two)
    assert ("token_type_ids" in encoder.inputs) == two


def test_segment_ids_are_0_for_passages_and_1_for_queries(caches, lm):
    seen = []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            seen.append(batch)
            return torch.zeros(len(batch["input_ids"]), 1)

    for kind, segment in (("passage", 0), ("query", 1)):
        seen.clear()
        all_texts(caches, load_template(lm), kind).encode(Spy(), np.arange(7), CPU, 10_000)
        (batch,) = seen
        assert torch.equal(batch["token_type_ids"], segment * batch["attention_mask"])


def test_texts_are_encoded_in_the_order_asked_for_within_the_budget(lm, caches):
    encoder, template = new_encoder(lm, MEAN, 3).eval(), load_template(lm)
    texts = all_texts(caches, template)
    rows = np.random.default_rng(1).permutation(60)
    rows[10] = rows[3]
    with torch.inference_mode():
        together = texts.encode(encoder, rows, CPU, 100)
        for position in (0, 3, 10, 59):
            alone = texts.encode(encoder, rows[position : position + 1], CPU, 100)
            assert torch.allclose(together[position], alone[0], atol=1e-6)
    assert torch.allclose(together[3], together[10], atol=1e-6)


def test_texts_are_cut_to_their_limit(lm, caches):
    template = load_template(lm)
    lengths = []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            lengths.extend(batch["attention_mask"].sum(1).tolist())
            return torch.zeros(len(batch["input_ids"]), 1)

    all_texts(caches, template, limit=12).encode(Spy(), np.arange(60), CPU, 50)
    assert sorted(lengths) == sorted(np.minimum(Tokens(caches["passages"]).lengths + 2, 12))


def test_dropout_is_off_in_a_loaded_encoder_and_on_in_training(make_encoder, caches):
    encoder, template = load_encoder(make_encoder())
    texts = all_texts(caches, template)
    with torch.inference_mode():
        assert torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))
        encoder.train()
        assert not torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))


def test_the_folder_is_a_transformers_folder_with_two_files_more(make_encoder, lm):
    from transformers import AutoModel, AutoTokenizer

    folder = make_encoder("cls")
    names = {path.name for path in folder.glob("[!.]*")}
    assert names == {path.name for path in lm.iterdir()} | {"cort.json", "projection.safetensors"}
    assert json.loads((folder / "cort.json").read_text()) == {
        "pooling": "cls",
        "dimension": 8,
        "query_length": 12,
        "passage_length": 16,
        "similarity": "angular",
        "projection": True,
        "query_segment": 1,
        "passage_segment": 0,
        "activation": "tanh",
        "query_prompt": "",
        "passage_prompt": "",
    }
    weights = AutoModel.from_pretrained(folder).state_dict()
    original = AutoModel.from_pretrained(lm).state_dict()
    assert all(torch.equal(weights[name], original[name]) for name in original if not name.startswith("pooler"))
    assert len(AutoTokenizer.from_pretrained(folder)) == 160


def test_the_settings_say_length_and_segment_of_each_kind(lm, caches):
    tokens, template = Tokens(caches["passages"]), load_template(lm)
    queries, passages = (texts_of(tokens, template, MEAN, kind) for kind in ("query", "passage"))
    assert (queries.max_length, queries.segment) == (12, 1)
    assert (passages.max_length, passages.segment) == (16, 0)


def test_the_fingerprint_is_of_weights_settings_and_tokenizer(make_encoder, tmp_path):
    folder = make_encoder()
    one = model_fingerprint(folder)
    assert one == model_fingerprint(make_encoder())
    assert len({one, *(model_fingerprint(make_encoder(**change)) for change in ({"seed": 9}, {"pooling": "cls"}))}) == 3
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy)
    (copy / "README.md").write_text("what it is")
    assert model_fingerprint(copy) == one
    for name in ("model.safetensors", "projection.safetensors", "cort.json", "config.json", "tokenizer.json"):
        content = (copy / name).read_bytes()
        (copy / name).write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert model_fingerprint(copy) != one
        (copy / name).write_bytes(content)
    assert model_fingerprint(copy) == one


@pytest.mark.parametrize(("name", "length"), [("query_length", 2), ("passage_length", 0), ("passage_length", 49)])
def test_lengths_the_model_cannot_take(lm, name, length):
    settings = replace(MEAN, **{name: length})
    with pytest.raises(
        InputError, match=f"^{name}: found {length}, expected 3 to 48 tokens for this model; change it$"
    ):
        new_encoder(lm, settings, 3)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cort.json", None),
        ("projection.safetensors", None),
        ("projection.safetensors", "x"),
    ],
)
def test_a_folder_that_is_no_encoder(make_encoder, tmp_path, name, content):
    folder = tmp_path / "e"
    shutil.copytree(make_encoder(), folder)
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_text(content)
    with pytest.raises(InputError, match=rf"^{folder}: found no CoRT encoder \(.*\), expected a folder that `train`"):
        load_encoder(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "config.json"])
@pytest.mark.parametrize("missing", [False, True])
def test_a_damaged_transformer(make_encoder, tmp_path, name, missing):
    folder = tmp_path / "e"
    shutil.copytree(make_encoder(), folder)
    (folder / name).write_bytes((folder / name).read_bytes()[:100])
    if missing:
        (folder / name).unlink()
    place = (
        "/config.json: found" if name == "config.json" and not missing else r": found no whole model \(.*\), expected"
    )
    with pytest.raises(InputError, match=rf"^{folder}{place} "):
        load_encoder(folder)


def test_a_projection_of_another_size(make_encoder, tmp_path):
    folder = tmp_path / "e"
    shutil.copytree(make_encoder(), folder)
    shutil.copyfile(make_encoder(dimension=4) / "projection.safetensors", folder / "projection.safetensors")
    with pytest.raises(InputError, match=rf"^{folder}/projection.safetensors: found bias of shape \(4,\), expected"):
        load_encoder(folder)

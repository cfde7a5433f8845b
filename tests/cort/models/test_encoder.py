import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch

from cort.formats.tokens import Tokens
from cort.models import encoder as encoders
from cort.models.batching import frame_text, pad
from cort.models.cross_encoder import PairSettings, new_cross_encoder
from cort.models.loading import load_transformer
from cort.models.tokenizer import load_template
from cort.models.transformer import model_fingerprint, most_tokens
from cort.system.errors import InputError

CPU = torch.device("cpu")
MEAN = encoders.EncoderSettings("mean", 8, 12, 16)

# Settings of tiny models, and the number of tokens that their 48 positions allow.
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


def all_texts(caches, template, kind="passage"):
    return encoders.Texts(Tokens(caches["passages"]), template, 16, getattr(MEAN, f"{kind}_segment"))


def test_mean_pooling_ignores_padding():
    states = torch.arange(24.0).reshape(2, 3, 4)
    mask = torch.tensor([[1, 1, 1], [1, 1, 0]])
    assert torch.equal(encoders.mean_pool(states, mask)[0], (states[0, 0] + states[0, 1] + states[0, 2]) / 3)
    assert torch.equal(encoders.mean_pool(states, mask)[1], (states[1, 0] + states[1, 1]) / 2)
    assert encoders.mean_pool(states.bfloat16(), mask).dtype == torch.float32


def test_the_projection_is_drawn_from_the_seed(lm):
    one, same, other = (encoders.new_encoder(lm, MEAN, seed).projection.weight for seed in (3, 3, 4))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


def test_padding_changes_nothing(model_type, caches):
    folder, longest = model_type
    template = load_template(folder)
    frames = [frame_text(Tokens(caches["passages"])[row], template, longest, 0) for row in range(10)]
    assert len({len(ids) for ids, _ in frames}) > 3
    for pooling in ("cls", "mean"):
        encoder = encoders.new_encoder(folder, encoders.EncoderSettings(pooling, 8, 12, 16), 3).eval()
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
    encoder = encoders.new_encoder(folder, encoders.EncoderSettings("cls", 8, longest, longest), 3).eval()
    assert torch.isfinite(encode(encoder, template, [frame])).all()
    reranker = new_cross_encoder(folder, PairSettings(12, longest), 3).eval()
    assert torch.isfinite(encode(reranker, template, [frame])).all()
    for query_length, passage_length in ((longest + 1, 12), (12, longest + 1)):
        with pytest.raises(InputError, match=f"_length: found {longest + 1}, expected 3 to {longest} tokens for this"):
            encoders.new_encoder(folder, encoders.EncoderSettings("cls", 8, query_length, passage_length), 3)
    with pytest.raises(InputError, match=f"max_length: found {longest + 1}, expected 14 to {longest} tokens for this"):
        new_cross_encoder(folder, PairSettings(12, longest + 1), 3)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_only_the_transformer_computes_in_half_precision(model_type, precision):
    folder, _ = model_type
    template, half = load_template(folder), {"bf16": torch.bfloat16, "fp16": torch.float16}[precision]
    frames = [frame_text(np.full(length, 7, dtype=np.int32), template, 16, 0) for length in (3, 9, 12)]
    made = {
        "mean": encoders.new_encoder(folder, MEAN, 3),
        "cls": encoders.new_encoder(folder, replace(MEAN, pooling="cls"), 3),
        "re-ranker": new_cross_encoder(folder, PairSettings(12, 16), 3),
    }
    for name, model in made.items():
        single = encode(model.eval(), template, frames)
        model.place(CPU, precision)
        rounded = encode(model, template, frames)
        assert half in {weight.dtype for weight in model.parameters()}, name
        assert torch.allclose(single, rounded, atol=0.05), name
        # If the output were rounded to half precision, they would be equal.
        assert not torch.equal(rounded, rounded.to(half).float()), name


def test_every_type_trains_saves_and_loads(model_type, tmp_path, caches):
    folder, _ = model_type
    encoder, template = encoders.new_encoder(folder, MEAN, 3).eval(), load_template(folder)
    texts = all_texts(caches, template)
    vectors = texts.encode(encoder, np.arange(10), CPU, 64)
    vectors.sum().backward()
    without = [name for name, weight in encoder.named_parameters() if weight.grad is None]
    assert without == []
    encoders.save_encoder(encoder, folder, tmp_path / "e")
    loaded, loaded_template = encoders.load_encoder(tmp_path / "e")
    assert loaded_template == template
    assert not loaded.training
    before, after = encoder.state_dict(), loaded.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    with torch.inference_mode():
        # Not equal to the last bit: weights that are mapped from a file are aligned differently in memory.
        assert torch.allclose(texts.encode(loaded, np.arange(10), CPU, 64), vectors, atol=1e-6)
        again, _ = encoders.load_encoder(tmp_path / "e")
        assert torch.equal(*(texts.encode(other, np.arange(10), CPU, 64) for other in (loaded, again)))


def test_segments_tell_queries_from_passages_if_the_model_has_two(model_type, caches):
    folder, _ = model_type
    encoder, template = encoders.new_encoder(folder, MEAN, 3).eval(), load_template(folder)
    with torch.inference_mode():
        as_passage, as_query = (
            all_texts(caches, template, kind).encode(encoder, np.arange(5), CPU, 640) for kind in ("passage", "query")
        )
    config = encoder.transformer.config
    two = config.model_type not in ("distilbert", "mpnet") and config.type_vocab_size > 1
    assert torch.equal(as_passage, as_query) == (not two)
    assert ("token_type_ids" in encoder.inputs) == two


def test_queries_and_passages_have_their_own_segment_and_limit(caches, lm):
    batches = []

    class Spy(torch.nn.Module):
        def forward(self, batch):
            batches.append(batch)
            return torch.zeros(len(batch["input_ids"]), 1)

    tokens = Tokens(caches["passages"])
    for kind, segment, limit in (("passage", 0, 16), ("query", 1, 12)):
        batches.clear()
        encoders.texts_of(tokens, load_template(lm), MEAN, kind).encode(Spy(), np.arange(60), CPU, 50)
        assert all(torch.equal(batch["token_type_ids"], segment * batch["attention_mask"]) for batch in batches)
        lengths = torch.cat([batch["attention_mask"].sum(1) for batch in batches]).tolist()
        assert sorted(lengths) == sorted(np.minimum(tokens.lengths + 2, limit))


def test_vectors_are_in_the_order_of_the_rows(lm, caches):
    encoder, template = encoders.new_encoder(lm, MEAN, 3).eval(), load_template(lm)
    texts = all_texts(caches, template)
    rows = np.random.default_rng(1).permutation(60)
    rows[10] = rows[3]
    with torch.inference_mode():
        together = texts.encode(encoder, rows, CPU, 100)
        for position in (0, 3, 10, 59):
            alone = texts.encode(encoder, rows[position : position + 1], CPU, 100)
            assert torch.allclose(together[position], alone[0], atol=1e-6)
    assert torch.allclose(together[3], together[10], atol=1e-6)


def test_dropout_is_off_in_a_loaded_encoder_and_on_in_training(make_encoder, caches):
    encoder, template = encoders.load_encoder(make_encoder())
    texts = all_texts(caches, template)
    with torch.inference_mode():
        assert torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))
        encoder.train()
        assert not torch.equal(*(texts.encode(encoder, np.arange(5), CPU, 640) for _ in range(2)))


def test_the_folder_is_a_transformers_folder_with_two_more_files(make_encoder, lm):
    from transformers import AutoModel, AutoTokenizer

    folder = make_encoder("cls")
    names = {path.name for path in folder.glob("[!.]*")}
    assert names == {path.name for path in lm.iterdir()} | {"cort.json", "projection.safetensors"}
    named = {"pooling": "cls", "dimension": 8, "query_length": 12, "passage_length": 16, "similarity": "angular"}
    named |= {"projection": True, "query_segment": 1, "passage_segment": 0, "activation": "tanh"}
    assert json.loads((folder / "cort.json").read_text()) == named | {"query_prompt": "", "passage_prompt": ""}
    weights = AutoModel.from_pretrained(folder).state_dict()
    original = AutoModel.from_pretrained(lm).state_dict()
    assert all(torch.equal(weights[name], original[name]) for name in original if not name.startswith("pooler"))
    assert len(AutoTokenizer.from_pretrained(folder)) == 160


def test_the_fingerprint_depends_on_weights_settings_and_tokenizer(make_encoder, tmp_path):
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


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("cort.json", None, r": found no CoRT encoder \(.*\), expected a folder that `train`"),
        ("projection.safetensors", None, r": found no CoRT encoder \(.*\), expected a folder that `train`"),
        ("projection.safetensors", b"x", r": found no CoRT encoder \(.*\), expected a folder that `train`"),
        ("model.safetensors", None, r": found no complete model \(.*\), expected "),
        ("model.safetensors", b"half", r": found no complete model \(.*\), expected "),
        ("config.json", None, r": found no complete model \(.*\), expected "),
    ],
)
def test_missing_and_damaged_files_are_refused(make_encoder, tmp_path, name, content, complaint):
    folder = shutil.copytree(make_encoder(), tmp_path / "e")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(InputError, match=rf"^{folder}{complaint}"):
        encoders.load_encoder(folder)

import os
from collections import OrderedDict

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from transformers import AutoModel

from cort.models.encoder import load_encoder
from tests.support.common import contents
from tests.support.released import difference, tokens_of, vectors_of

DIMENSION = 8
MARK = "pickle-was-run"


class Net(torch.nn.Module):
    """The authors' model, as in their code."""

    def __init__(self, folder):
        super().__init__()
        self.transformer = AutoModel.from_pretrained(folder, dtype=torch.float32)
        self.f1 = torch.nn.Linear(self.transformer.config.hidden_size, DIMENSION)

    def forward(self, **batch):
        return torch.tanh(self.f1(self.transformer(**batch).last_hidden_state[:, 0]))


@pytest.fixture(scope="session")
def albert(make_base_model):
    return make_base_model(model_type="albert", embedding_size=16)


@pytest.fixture(scope="session")
def net(albert):
    """The authors' model with other weights than the base model."""
    torch.manual_seed(11)
    net = Net(albert).eval()
    with torch.no_grad():
        for weights in net.parameters():
            weights.normal_(0, 0.2)
    return net


def released(net):
    """State as transformers 3 and 4 saved it, with a buffer."""
    state = OrderedDict(net.state_dict())
    state["transformer.embeddings.position_ids"] = torch.arange(48).unsqueeze(0)
    return state


def without(state, *names):
    return OrderedDict((name, value) for name, value in state.items() if not name.startswith(names))


def lightning(state):
    """A checkpoint of PyTorch Lightning, with more than the weights."""
    moments = {0: {"step": 5, "exp_avg": torch.zeros(3)}}
    optimizers = [{"state": moments, "param_groups": [{"lr": 2e-5, "params": [0]}]}]
    numbers = {"epoch": 9, "global_step": 838_000, "pytorch-lightning_version": "0.8.5"}
    more = {"lr_schedulers": [{"last_epoch": 7}], "hyper_parameters": {"size": DIMENSION, "name": "albert-base-v2"}}
    return {**numbers, "state_dict": state, "optimizer_states": optimizers, **more}


FORMS = {
    "state_dict": lambda state: state,
    "a Lightning checkpoint": lightning,
    "without pooler": lambda state: without(state, "transformer.pooler."),
    "as newer libraries save it": lambda state: without(state, "transformer.embeddings.position_ids"),
    "names without a prefix": lambda state: {name.removeprefix("transformer."): value for name, value in state.items()},
    "half precision": lambda state: {
        name: value.half() if value.is_floating_point() else value for name, value in state.items()
    },
}


def options(weights, albert, output, **changes):
    named = {"weights": weights, "base_model": albert, "dimension": DIMENSION, "output": output}
    return {"name": "import_encoder", **named, "query_length": 12, "passage_length": 16, **changes}


@pytest.mark.parametrize(("form", "old"), [*((form, False) for form in FORMS), ("state_dict", True)])
def test_an_encoder_of_the_authors_gives_their_vectors(stage, net, albert, world, tmp_path, form, old):
    torch.save(FORMS[form](released(net)), tmp_path / "net.pt", _use_new_zipfile_serialization=not old)
    made = stage(**options(tmp_path / "net.pt", albert, tmp_path / "encoder"))
    tokens, encoder = tokens_of(tmp_path, albert, world.texts), load_encoder(made / "best")
    for kind, segment, length in (("query", 1, 12), ("passage", 0, 16)):
        texts, template = encoder.texts(tokens, kind), encoder.framings[kind].template
        for row in range(3):
            ids = [*template.before, *tokens[row][: length - template.extra], *template.after]
            with torch.inference_mode():
                batch = {"input_ids": torch.tensor([ids]), "token_type_ids": torch.full((1, len(ids)), segment)}
                expected = net(**batch, attention_mask=torch.ones(1, len(ids), dtype=torch.long))
                found = texts.encode(encoder, np.array([row]), torch.device("cpu"))
            assert torch.allclose(found, expected, rtol=0, atol=2e-3 if form == "half precision" else 1e-6)


@pytest.mark.parametrize("prefix", ["", "albert.", "transformer."])
def test_an_encoder_without_projection_is_read_from_safetensors(stage, net, albert, tmp_path, prefix):
    state = {prefix + name: value.contiguous() for name, value in net.transformer.state_dict().items()}
    if prefix == "albert.":
        state["predictions.bias"] = torch.zeros(5)
    save_file(state, tmp_path / "net.safetensors")
    changes = {"dimension": 32, "projection": False, "pooling": "mean", "passage_segment": 1}
    encoder = load_encoder(stage(**options(tmp_path / "net.safetensors", albert, tmp_path / "m", **changes)) / "best")
    assert encoder.projection is None
    assert [framing.template.segment for framing in encoder.framings.values()] == [1, 1]
    for name, value in encoder.transformer.state_dict().items():
        assert torch.equal(value, net.transformer.state_dict()[name])


def test_both_folders_are_equal_reproducible_and_read_by_sentence_transformers(stage, net, albert, world, tmp_path):
    torch.save(released(net), tmp_path / "net.pt")
    first, second = (
        stage(**options(tmp_path / "net.pt", albert, tmp_path / name / "cort", cleaning="cort"))
        for name in ("first", "second")
    )
    assert contents(second) == contents(first)
    best, last = (contents(first / name) for name in ("best", "last"))
    assert best == last
    card = best["README.md"].decode()
    assert 'SentenceTransformer("cort")' in card
    assert all(f"| {name} | `" in card for name in best.keys() - {"README.md"})
    peer, texts = SentenceTransformer(str(first / "best"), device="cpu"), [*world.texts[:9], "٣ ko; ri"]
    for kind, encode in (("query", peer.encode_query), ("passage", peer.encode_document)):
        tokens = tokens_of(tmp_path, first / "best", texts, kind, "cort")
        assert difference(vectors_of(first / "best", tokens, kind), encode(texts)) <= 1e-5


class Bomb:
    """An object whose pickle runs a command."""

    def __reduce__(self):
        return os.system, (f"touch {MARK}",)


class Settings:
    """Some versions of Lightning save such an object with the weights."""


def put(name, value):
    return lambda state: {**state, name: value}


LAYER = "transformer.encoder.albert_layer_groups.0.albert_layers.0."
EMBEDDINGS = "transformer.embeddings.word_embeddings"
WRONG = {
    "a command": (put("bomb", Bomb()), "a file that does not only have tensors and plain values"),
    "a command in a checkpoint": (lambda state: {**lightning(state), "callbacks": Bomb()}, "it names posix.system"),
    "another class": (lambda state: {**lightning(state), "x": Settings()}, "it names test_import_encoder.Settings"),
    "a missing layer": (lambda state: without(state, f"{LAYER}ffn."), f"no tensor '{LAYER}ffn.bias' and 1 more, expe"),
    "an unknown tensor": (put("f2.weight", torch.ones(2)), "the unknown tensor 'f2.weight', "),
    "this project's name": (put("projection.weight", torch.ones(2)), "the unknown tensor 'projection.weight', "),
    "another vocabulary": (put(f"{EMBEDDINGS}.weight", torch.ones(7, 16)), ".weight of shape (7, 16)"),
    "another dimension": (put("f1.weight", torch.ones(9, 32)), "shape (9, 32), expected (8, 32); set dimension to 9"),
    "not a tensor": (put("f1.bias", [1.0] * 8), "no tensor 'f1.bias', expected"),
    "empty": (lambda state: {}, "no tensor "),
}


@pytest.mark.parametrize("name", WRONG)
def test_anything_else_is_refused_and_not_executed(net, albert, refused, tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    change, words = WRONG[name]
    torch.save(change(released(net)), tmp_path / "net.pt")
    line = refused(**options(tmp_path / "net.pt", albert, tmp_path / "encoder"))
    assert line.startswith(f"{tmp_path}/net.pt: found ")
    assert words in line
    assert not (tmp_path / MARK).exists()


@pytest.mark.parametrize("file", ["net.pt", "net.safetensors"])
@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 cut", None])
def test_other_files_are_refused(net, albert, refused, tmp_path, file, content):
    torch.save(released(net), tmp_path / "net.pt")
    content = (tmp_path / "net.pt").read_bytes()[:10_000] if content is None else content
    (tmp_path / file).write_bytes(content)
    line = refused(**options(tmp_path / file, albert, tmp_path / "encoder"))
    assert "a file that does not only have tensors and plain values" in line


def test_a_wrong_length_is_refused(net, albert, refused, tmp_path):
    torch.save(released(net), tmp_path / "net.pt")
    line = refused(**options(tmp_path / "net.pt", albert, tmp_path / "encoder", passage_length=49))
    assert line.startswith("passage_length: found 49")

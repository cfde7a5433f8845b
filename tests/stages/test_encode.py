import json
import shutil
import string
import subprocess
import sys
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import encode
from cort.formats.shards import Tokens, read_precision, write_tokens
from cort.models import precision
from cort.models.encode_vectors import encode_block
from cort.models.encoder import load_encoder
from cort.models.late_interaction import load_late_interaction
from cort.models.layout import model_fingerprint
from cort.models.tokenizer import fingerprint, load_tokenizer
from cort.retrieval.vectors import open_vectors
from tests.support.common import command_line
from tests.support.errors import line_of
from tests.support.layouts import Maker, take_in
from tests.support.released import change_weights, peer, tokens_of
from tests.support.vectors import without_precision

CPU = torch.device("cpu")
#: command -> size of a block, and the function that makes one
BLOCKS = {"vectors": ("BLOCK", "encode_block"), "tokens": ("TOKEN_BLOCK", "encode_token_block")}


@pytest.fixture(scope="module")
def model(make_encoder):
    return make_encoder()


@pytest.fixture(scope="module")
def late(make_reranker):
    return make_reranker(kind="late_interaction", dimension=5, skip_punctuation=True)


@pytest.fixture(params=BLOCKS)
def command(request, model, late):
    """A command of the stage, and a model for it."""
    return request.param, {"vectors": model, "tokens": late}[request.param]


def options(model, caches, output, command="vectors", **changes):
    kind = "passage" if command == "vectors" else None
    named = {"name": f"encode {command}", "model": model, "tokens": caches["passages"], "kind": kind, "output": output}
    return named | changes


@pytest.fixture
def run(stage, caches):
    return lambda model, output, **changes: stage(**options(model, caches, output, **changes))


def contents(command, paths):
    """Ids of shards, and a vector or an array of vectors for each of them."""
    opened = open_vectors(paths, None)
    found = [opened.ragged(np.array([row]))[0] for row in range(len(opened.ids))]
    return opened.ids.to_pylist(), [one[0] for one in found] if command == "vectors" else found


def alone(model, path, kind):
    """Encode and normalise every text by itself."""
    encoder, tokens = load_encoder(model), Tokens(path)
    texts = encoder.texts(tokens, kind)
    with torch.inference_mode():
        vectors = [texts.encode(encoder, np.array([row]), CPU)[0].numpy() for row in range(len(tokens))]
    return np.array([vector / np.linalg.norm(vector) for vector in vectors])


@pytest.mark.parametrize(("kind", "cache"), [("passage", "passages"), ("query", "queries.train")])
def test_every_text_has_its_unit_vector(run, model, caches, tmp_path, kind, cache):
    opened = open_vectors([run(model, tmp_path / "a.arrow", kind=kind, tokens=caches[cache])])
    tokens = Tokens(caches[cache])
    assert opened.ids.to_pylist() == tokens.ids.to_pylist()
    vectors = opened.matrix()
    assert vectors.shape == (len(tokens), 8)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.allclose(vectors, alone(model, caches[cache], kind), atol=1e-5)
    assert (opened.origin.model, opened.dimension, opened.storage) == (model_fingerprint(model), 8, "fp32")


def test_the_log_says_how_much_is_truncated(run, model, caches, tmp_path, capsys):
    run(model, tmp_path / "x", kind="query")
    lengths = Tokens(caches["passages"]).lengths
    cut = f"{(lengths > 10).mean():.1%} truncated to 10, "
    assert f"{lengths.mean():.1f} tokens on average, {cut}" in capsys.readouterr().err


def test_half_precision_storage_rounds_the_same_vectors(run, model, tmp_path):
    single = open_vectors([run(model, tmp_path / "single.arrow")])
    half = open_vectors([run(model, tmp_path / "half.arrow", storage="fp16")])
    assert half.storage == "fp16"
    stored = half[np.arange(len(half))]
    assert stored.dtype == np.float16
    assert np.array_equal(stored, single.matrix().astype(np.float16))
    assert np.linalg.norm(stored.astype(float), axis=1).max() < half.longest < 1.01
    assert (tmp_path / "half.arrow").stat().st_size < (tmp_path / "single.arrow").stat().st_size


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_bf16_is_close_to_single_precision(run, make_encoder, tmp_path, pooling):
    model = make_encoder(pooling)
    single = open_vectors([run(model, tmp_path / "single.arrow")]).matrix()
    bf16 = open_vectors([run(model, tmp_path / "bf16.arrow", precision="bf16")]).matrix()
    assert not np.array_equal(single, bf16)
    # bfloat16 has 8 significant bits; normalisation is in single precision all the same.
    assert (single * bf16).sum(axis=1).min() > 0.995
    assert np.allclose(np.linalg.norm(bf16, axis=1), 1, atol=1e-6)


def test_every_unmasked_token_has_its_vector(run, late, caches, tmp_path):
    ids_found, found = contents("tokens", [run(late, tmp_path / "a.arrow", command="tokens")])
    tokens, encoder = Tokens(caches["passages"]), load_late_interaction(late)
    template, _ = encoder.framings["passage"]
    assert ids_found == tokens.ids.to_pylist()
    left_out = set(map(load_tokenizer(late).token_to_id, string.punctuation))
    for row, vectors in enumerate(found):
        ids = [*template.before, *tokens[row][: 24 - template.extra], *template.after]
        batch = {"attention_mask": torch.ones(1, len(ids), dtype=torch.long)}
        batch |= {"input_ids": torch.tensor([ids]), "token_type_ids": torch.zeros(1, len(ids), dtype=torch.long)}
        batch["task"] = "document"
        with torch.inference_mode():
            alone = encoder(batch)[0, : len(ids), :5].numpy()
        kept = [place for place, token in enumerate(ids) if token not in left_out]
        assert vectors.dtype == np.float16
        assert np.allclose(vectors, alone[kept], atol=1e-3)
        assert np.allclose(np.linalg.norm(vectors.astype(float), axis=1), 1, atol=2e-3)


@pytest.mark.usefixtures("bf16")
def test_blocks_of_an_interrupted_shard_serve_other_shards_in_their_precision(
    run, command, caches, tmp_path, monkeypatch
):
    name, model = command
    size, function = BLOCKS[name]
    module = import_module(encode.COMMANDS[name])
    monkeypatch.setattr(module, size, 16)
    whole = contents(name, [run(model, tmp_path / "bf16.arrow", command=name, precision="bf16")])
    made, limit, encode_block = [], 32, getattr(module, function)

    def block(job, rows, **named):
        if rows[0] >= limit:
            raise KeyboardInterrupt
        made.append(rows[0])
        return encode_block(job, rows, **named)

    monkeypatch.setattr(precision, "choose", lambda device: "bf16")
    monkeypatch.setattr(module, function, block)
    chosen = {"command": name, "precision": "auto", "checkpoints": tmp_path / "kept"}
    named = options(model, caches, tmp_path / "a.arrow", **chosen)
    assert encode.main([name, *command_line(named, {"name": None})]) == 130
    assert made == [0, 16]
    # Another machine goes on, with other shards.
    limit = 1_000
    monkeypatch.setattr(precision, "choose", lambda device: "fp32")
    paths = [run(model, tmp_path / f"{number}.arrow", shard=f"{number}-of-2", **chosen) for number in (1, 2)]
    ids, vectors = contents(name, paths)
    assert ids == whole[0]
    assert [part.tobytes() for part in vectors] == [part.tobytes() for part in whole[1]]
    assert made == list(range(0, len(ids), 16))
    assert [read_precision(path) for path in paths] == ["bf16", "bf16"]
    run(model, tmp_path / "1-of-1.arrow", **chosen)
    assert not (tmp_path / "kept").exists()


@pytest.mark.usefixtures("bf16")
@pytest.mark.parametrize(
    ("stored", "configured", "expected"),
    [("bf16", "auto", "bf16"), ("fp32", "bf16", "fp32"), (None, "auto", "fp32"), (None, "bf16", "bf16")],
)
def test_queries_get_the_precision_of_the_passages(
    run, model, caches, tmp_path, monkeypatch, stored, configured, expected
):
    monkeypatch.setattr(precision, "choose", lambda device: pytest.fail("the passages have a precision"))
    passages = run(model, tmp_path / "passages.arrow", precision=stored or expected)
    if stored is None:
        without_precision(passages)
    named = {"kind": "query", "tokens": caches["queries.train"], "precision": configured}
    queries = run(model, tmp_path / "queries.arrow", passages=passages, **named)
    alike = run(model, tmp_path / "alike.arrow", **named | {"precision": expected})
    assert queries.read_bytes() == alike.read_bytes()
    assert read_precision(queries) == expected


def test_empty_texts_and_caches(run, command, tmp_path):
    name, model = command
    for number, tokens in enumerate(([[], [7], []], [])):
        path = tmp_path / f"{number}.tokens"
        ids = pa.array([f"d{row}" for row in range(len(tokens))], pa.string())
        write_tokens(path, [(ids, tokens)], fingerprint(model))
        _, found = contents(name, [run(model, tmp_path / f"{number}.arrow", command=name, tokens=path)])
        if name == "tokens":
            assert [len(vectors) for vectors in found] == ([2, 3, 2] if tokens else [])
        else:
            assert len(found) == len(tokens)
            assert np.allclose(np.linalg.norm(np.array(found).reshape(-1, 8), axis=1), 1, atol=1e-6)
            assert not tokens or np.allclose(found[0], found[2], atol=1e-6)


@pytest.mark.parametrize("unit", [True, False], ids=["cosine", "inner product"])
@pytest.mark.parametrize("kind", ["passage", "query"])
def test_a_text_without_known_symbols_has_a_vector_of_zeros(run, world, lm, tmp_path, capsys, unit, kind):
    make = Maker(tmp_path / "released", world, lm)
    make.static(unit=unit, similarity_fn_name="cosine" if unit else "dot")
    unknown = load_tokenizer(lm).token_to_id("[UNK]")
    # That of the padding is not zero, but no text has it.
    change_weights(make.folder / "model.safetensors", lambda weights: weights["embedding.weight"][unknown].zero_())
    model, texts = take_in(make.folder, tmp_path / "model"), ["ba ko", "日本", "", "ri 日", "ß"]
    tokens = tokens_of(tmp_path, model, texts, kind)
    capsys.readouterr()
    vectors = open_vectors([run(model, tmp_path / "a.arrow", tokens=tokens.path, kind=kind)]).matrix()
    assert np.flatnonzero(~vectors.any(axis=1)).tolist() == [1, 2, 4]
    assert np.allclose(vectors, peer("SentenceTransformer", make.folder).encode(texts), atol=1e-6)
    [line] = [line for line in capsys.readouterr().err.splitlines() if "WARNING" in line and "zero" in line]
    assert line.endswith(f"{tokens.path}: the vectors of 3 texts are zero and score 0, the first is '1'")


def test_static_embeddings_need_no_torch(world, lm, tmp_path):
    make = Maker(tmp_path / "released", world, lm)
    make.static(unit=True, similarity_fn_name="cosine")
    model = take_in(make.folder, tmp_path / "model")
    named = {"tokens": tokens_of(tmp_path, model, world.texts).path, "checkpoints": tmp_path / "kept"}
    words = ["vectors", *command_line({"model": model, "kind": "passage", "output": tmp_path / "a.arrow"} | named)]
    program = f"import sys; from cort import encode; encode.main({words}); sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], check=True)
    theirs = peer("SentenceTransformer", make.folder).encode(world.texts)
    assert np.allclose(open_vectors([tmp_path / "a.arrow"]).matrix(), theirs, rtol=0, atol=2e-7)


def test_tokens_of_another_tokenizer_are_refused(refused, model, caches, tmp_path):
    other = shutil.copytree(model, tmp_path / "other")
    path = other / "document_0_Transformer" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["max_input_chars_per_word"] -= 1
    path.write_text(json.dumps(content))
    line = refused(**options(other, caches, tmp_path / "a.arrow"))
    tokenizers = f"tokens of tokenizer {fingerprint(model)}, expected tokenizer {fingerprint(other)}"
    assert line.startswith(f"{caches['passages']}: found {tokenizers}; ")


def test_a_vector_beyond_the_bound_of_its_file_is_refused():
    vectors = np.array([[0.6, 0.8], [0, 0], [0.6, 0.81]], np.float32)
    texts = SimpleNamespace(
        vectors=lambda *_: vectors, ids=lambda _: pa.array(["a", "b", "c"]), tokens=SimpleNamespace(path="t.arrow")
    )
    job, encoder = SimpleNamespace(device=None, precision="fp32"), SimpleNamespace(unit_length=True)
    line = line_of(encode_block, job, np.arange(3), encoder, texts, "fp32")
    assert line.startswith("t.arrow: found in fp32 a vector of length 1.008 of the text 'c', expected length 1; ")


@pytest.mark.parametrize(("similarity", "expected"), [("angular", "length 1"), ("inner_product", "finite numbers")])
def test_vectors_with_nan_are_refused(refused, make_encoder, caches, tmp_path, similarity, expected):
    broken, name = make_encoder(similarity=similarity), "embeddings.LayerNorm.weight"
    path = broken / "document_0_Transformer" / "model.safetensors"
    change_weights(path, lambda weights: weights[name][:1].fill_(3e38))
    line = refused(**options(broken, caches, tmp_path / "a.arrow"))
    found = f"found in fp32 a vector of length nan of the text 'd0', expected {expected}; "
    assert line.startswith(f"{caches['passages']}: {found}")


def test_token_vectors_that_overflow_half_precision_are_refused(refused, make_reranker, caches, tmp_path):
    folder = make_reranker(kind="late_interaction", similarity="dot")
    change_weights(
        folder / "1_Dense" / "model.safetensors", lambda weights: [tensor.mul_(1e6) for tensor in weights.values()]
    )
    line = refused(**options(folder, caches, tmp_path / "a.arrow", command="tokens"))
    assert line.startswith(f"{caches['passages']}: found in fp32 a token vector with ")
    assert "of the text 'd0', expected finite numbers up to 65504; " in line


def test_a_model_without_token_vectors_is_refused(refused, make_reranker, caches, tmp_path):
    folder = make_reranker()
    line = refused(**options(folder, caches, tmp_path / "a.arrow", command="tokens"))
    assert line.startswith(f"{folder}/config_sentence_transformers.json: found CrossEncoder, ")

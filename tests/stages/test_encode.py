import json
import shutil

import numpy as np
import pytest
import torch

from cort import encode
from cort.formats.embeddings import all_vectors, open_shards
from cort.formats.tokens import Tokens, write_tokens
from cort.formats.vector_files import all_ids
from cort.models.encoder import load_encoder, texts_of
from cort.models.tokenizer import fingerprint
from cort.models.transformer import model_fingerprint

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(make_encoder):
    return make_encoder()


def options(model, caches, output, **changes):
    named = {"model": model, "tokens": caches["passages"], "kind": "passage", "output": output, **changes}
    return [str(part) for name, value in named.items() for part in (f"--{name}", value)]


def run(model, caches, output, **changes):
    assert encode.main(options(model, caches, output, **changes)) == 0
    return output


def alone(model, path, kind):
    """Encode and normalise every text by itself."""
    encoder, template = load_encoder(model)
    tokens = Tokens(path)
    texts = texts_of(tokens, template, encoder.settings, kind)
    with torch.inference_mode():
        vectors = [texts.encode(encoder, np.array([row]), CPU, 1)[0].numpy() for row in range(len(tokens))]
    return np.array([vector / np.linalg.norm(vector) for vector in vectors])


@pytest.mark.parametrize(("kind", "cache"), [("passage", "passages"), ("query", "queries.train")])
def test_every_text_has_its_unit_vector(model, caches, tmp_path, kind, cache):
    shards = open_shards([run(model, caches, tmp_path / "a.arrow", kind=kind, tokens=caches[cache])])
    tokens = Tokens(caches[cache])
    assert all_ids(shards).to_pylist() == tokens.ids.to_pylist()
    vectors = all_vectors(shards)
    assert vectors.shape == (len(tokens), 8)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    assert np.allclose(vectors, alone(model, caches[cache], kind), atol=1e-5)
    assert (shards[0].model, shards[0].dimension, shards[0].storage) == (model_fingerprint(model), 8, "fp32")


def test_the_log_says_how_much_is_truncated(model, caches, tmp_path, capsys):
    run(model, caches, tmp_path / "x", kind="query", tokens=caches["passages"])
    lengths = Tokens(caches["passages"]).lengths
    cut = f"{(lengths > 10).mean():.1%} truncated to 10, "
    assert f"{lengths.mean():.1f} tokens on average, {cut}" in capsys.readouterr().err


def test_the_kind_decides_segment_and_length(model, caches, tmp_path):
    passage, query = (
        all_vectors(open_shards([run(model, caches, tmp_path / kind, kind=kind)])) for kind in ("passage", "query")
    )
    # The same texts: cut to 16 or 12 tokens, in segment 0 or 1.
    assert np.abs(passage - query).max(axis=1).min() > 1e-3


@pytest.mark.parametrize("block", [7, 20, 64, 4096])
@pytest.mark.parametrize("shards", [1, 2, 3, 5])
def test_the_shards_are_the_whole_byte_for_byte(model, caches, tmp_path, monkeypatch, block, shards):
    monkeypatch.setattr(encode, "BLOCK", block)
    whole = open_shards([run(model, caches, tmp_path / "whole.arrow")])
    paths = [
        run(model, caches, tmp_path / f"{number}.arrow", shard=f"{number}-of-{shards}")
        for number in range(1, shards + 1)
    ]
    parts = open_shards(paths)
    assert all_ids(parts).equals(all_ids(whole))
    assert all_vectors(parts).tobytes() == all_vectors(whole).tobytes()


def test_the_same_run_gives_the_same_bytes(model, caches, tmp_path):
    one, two = (run(model, caches, tmp_path / name) for name in ("one.arrow", "two.arrow"))
    assert one.read_bytes() == two.read_bytes()


def test_a_wrong_shard_leaves_no_output(model, caches, tmp_path, complaint):
    output = tmp_path / "a.arrow"
    line = complaint(encode.main, options(model, caches, output, shard="3-of-2"), output)
    assert line == "--shard: found '3-of-2', expected i-of-n with 1 <= i <= n; fix it"


def test_half_precision_storage_rounds_the_same_vectors(model, caches, tmp_path):
    single = open_shards([run(model, caches, tmp_path / "single.arrow")])
    half = open_shards([run(model, caches, tmp_path / "half.arrow", storage="fp16")])
    assert half[0].storage == "fp16"
    (_, stored), *_ = half[0].blocks()
    assert stored.dtype == np.float16
    assert np.array_equal(stored, all_vectors(single).astype(np.float16))
    assert (tmp_path / "half.arrow").stat().st_size < (tmp_path / "single.arrow").stat().st_size


@pytest.mark.parametrize("pooling", ["mean", "cls"])
def test_bf16_is_close_to_single_precision(make_encoder, caches, tmp_path, pooling):
    model = make_encoder(pooling)
    single = all_vectors(open_shards([run(model, caches, tmp_path / "single.arrow")]))
    bf16 = all_vectors(open_shards([run(model, caches, tmp_path / "bf16.arrow", precision="bf16")]))
    assert not np.array_equal(single, bf16)
    # bfloat16 has 8 significant bits; normalisation is in single precision all the same.
    assert (single * bf16).sum(axis=1).min() > 0.995
    assert np.allclose(np.linalg.norm(bf16, axis=1), 1, atol=1e-6)


def test_empty_texts_and_caches(model, tmp_path):
    import pyarrow as pa

    for number, tokens in enumerate(([[], [7], []], [])):
        path = tmp_path / f"{number}.tokens"
        ids = pa.array([f"d{row}" for row in range(len(tokens))], pa.string())
        write_tokens(path, [(ids, tokens)], fingerprint(model))
        shards = open_shards([run(model, {"passages": path}, tmp_path / f"{number}.arrow")])
        vectors = all_vectors(shards)
        assert vectors.shape == (len(tokens), 8)
        assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
        if len(tokens):
            assert np.allclose(vectors[0], vectors[2], atol=1e-6)


def test_tokens_of_another_tokenizer_are_refused(model, caches, tmp_path, complaint):
    other = tmp_path / "other"
    shutil.copytree(model, other)
    (other / "tokenizer.json").write_text((other / "tokenizer.json").read_text() + "\n")
    line = complaint(encode.main, options(other, caches, tmp_path / "a.arrow"), tmp_path / "a.arrow")
    assert line == (
        f"{caches['passages']}: found tokens of tokenizer {fingerprint(model)}, "
        f"expected tokenizer {fingerprint(other)}; delete it and tokenize again"
    )


def test_a_folder_that_is_no_encoder(lm, caches, tmp_path, complaint):
    line = complaint(encode.main, options(lm, caches, tmp_path / "a.arrow"), tmp_path / "a.arrow")
    assert line.startswith(f"{lm}: found no CoRT encoder (")


def test_a_missing_cache_and_a_truncated_one(model, caches, tmp_path, complaint):
    output = tmp_path / "a.arrow"
    line = complaint(encode.main, options(model, caches, output, tokens=tmp_path / "none"), output)
    assert "none" in line
    whole = Tokens(caches["passages"]).path.read_bytes()
    (tmp_path / "half").write_bytes(whole[: len(whole) // 2])
    line = complaint(encode.main, options(model, caches, output, tokens=tmp_path / "half"), output)
    assert line.startswith(f"{tmp_path}/half: found unreadable bytes (")


def test_blocks_of_a_shard_that_was_ended_serve_any_number_of_shards(model, caches, tmp_path, monkeypatch):
    monkeypatch.setattr(encode, "BLOCK", 16)
    whole = open_shards([run(model, caches, tmp_path / "whole.arrow")])
    made, encode_block = [], encode.encode_block

    def until(end):
        def block(rows, *arguments):
            if rows[0] >= end:
                raise KeyboardInterrupt
            made.append(rows[0])
            return encode_block(rows, *arguments)

        return block

    kept = tmp_path / "kept"
    monkeypatch.setattr(encode, "encode_block", until(48))
    assert encode.main(options(model, caches, tmp_path / "1.arrow", checkpoints=kept)) == 130
    assert made == [0, 16, 32]
    monkeypatch.setattr(encode, "encode_block", until(1_000))
    paths = [
        run(model, caches, tmp_path / f"{number}.arrow", shard=f"{number}-of-2", checkpoints=kept) for number in (1, 2)
    ]
    assert made == list(range(0, len(Tokens(caches["passages"])), 16))
    assert all_vectors(open_shards(paths)).tobytes() == all_vectors(whole).tobytes()
    assert not kept.exists()


@pytest.mark.parametrize(("similarity", "number"), [("angular", "3e38"), ("inner_product", "3e38")])
def test_vectors_that_are_not_numbers_are_refused(make_encoder, caches, tmp_path, complaint, similarity, number):
    from safetensors.torch import load_file, save_file

    broken = shutil.copytree(make_encoder(), tmp_path / "broken")
    settings = json.loads((broken / "cort.json").read_text()) | {"similarity": similarity, "projection": True}
    (broken / "cort.json").write_text(json.dumps(settings))
    weights = load_file(broken / "model.safetensors")
    weights["embeddings.LayerNorm.weight"][0] = float(number)
    save_file(weights, broken / "model.safetensors", metadata={"format": "pt"})
    output = tmp_path / "a.arrow"
    line = complaint(encode.main, options(broken, caches, output), output)
    expected = "length 1" if similarity == "angular" else "finite numbers"
    assert line == (
        f"{caches['passages']}: found in fp32 a vector of length nan of the text 'd0', "
        f"expected {expected}; use precision fp32 or train the encoder again"
    )

import numpy as np
import pyarrow as pa
import pytest
import torch

from cort import encode_tokens
from cort.formats.token_embeddings import open_token_shards
from cort.formats.tokens import Tokens, write_tokens
from cort.models.late_interaction import load_token_encoder, origin_of
from cort.models.tokenizer import fingerprint

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def model(make_reranker):
    return make_reranker(kind="late_interaction", dimension=5, skip_punctuation=True)


def options(model, caches, output, **changes):
    named = {"model": model, "tokens": caches["passages"], "output": output, **changes}
    return [str(part) for name, value in named.items() for part in (f"--{name}", value)]


def run(model, caches, output, **changes):
    assert encode_tokens.main(options(model, caches, output, **changes)) == 0
    return output


def open_all(model, *paths):
    return open_token_shards(paths, origin_of(model, load_token_encoder(model)[0].settings))


def all_vectors(shards):
    return [block.of(row) for shard in shards for block in shard.blocks() for row in range(len(block))]


def test_every_token_that_counts_has_its_vector(model, caches, tmp_path):
    shards = open_all(model, run(model, caches, tmp_path / "a.arrow"))
    tokens, (encoder, template) = Tokens(caches["passages"]), load_token_encoder(model)
    assert shards[0].table["id"].to_pylist() == tokens.ids.to_pylist()
    left_out = set(encoder.punctuation.tolist())
    for row, vectors in enumerate(all_vectors(shards)):
        ids = [*template.before, *tokens[row][: 24 - template.extra], *template.after]
        batch = {name: torch.ones(1, len(ids), dtype=torch.long) for name in ("attention_mask",)}
        batch |= {"input_ids": torch.tensor([ids]), "token_type_ids": torch.zeros(1, len(ids), dtype=torch.long)}
        with torch.inference_mode():
            alone = encoder(batch)[0, : len(ids), :5].numpy()
        kept = [place for place, token in enumerate(ids) if token not in left_out]
        assert vectors.dtype == np.float16
        assert np.allclose(vectors, alone[kept], atol=1e-3)
        assert np.allclose(np.linalg.norm(vectors.astype(float), axis=1), 1, atol=2e-3)


@pytest.mark.parametrize(("block", "shards"), [(7, 3), (20, 2), (64, 5)])
def test_the_shards_are_the_whole_byte_for_byte(model, caches, tmp_path, monkeypatch, block, shards):
    monkeypatch.setattr(encode_tokens, "BLOCK", block)
    whole = open_all(model, run(model, caches, tmp_path / "whole.arrow"))
    paths = [
        run(model, caches, tmp_path / f"{number}.arrow", shard=f"{number}-of-{shards}")
        for number in range(1, shards + 1)
    ]
    parts = open_all(model, *paths)
    assert [name for part in parts for name in part.table["id"].to_pylist()] == whole[0].table["id"].to_pylist()
    found, expected = (np.concatenate(all_vectors(some)) for some in (parts, whole))
    assert found.tobytes() == expected.tobytes()


def test_a_shard_goes_on_after_its_last_finished_block(model, caches, tmp_path, monkeypatch):
    monkeypatch.setattr(encode_tokens, "BLOCK", 16)
    whole = run(model, caches, tmp_path / "whole.arrow").read_bytes()
    made, encode_block = [], encode_tokens.encode_block

    def ends_at_the_third(rows, *others):
        if len(made) == 2:
            raise KeyboardInterrupt
        made.append(rows)
        return encode_block(rows, *others)

    kept = tmp_path / "kept"
    with monkeypatch.context() as patch:
        patch.setattr(encode_tokens, "encode_block", ends_at_the_third)
        assert encode_tokens.main(options(model, caches, tmp_path / "a.arrow", checkpoints=kept)) != 0
    assert sorted(path.name for path in kept.glob("*.arrow")) == ["block-0.arrow", "block-1.arrow"]
    made.clear()
    monkeypatch.setattr(
        encode_tokens, "encode_block", lambda rows, *more: made.append(rows) or encode_block(rows, *more)
    )
    assert run(model, caches, tmp_path / "a.arrow", checkpoints=kept).read_bytes() == whole
    assert made[0] == (32, 48)
    assert not kept.exists()


def test_empty_texts_and_caches(model, tmp_path):
    for number, tokens in enumerate(([[], [7], []], [])):
        path = tmp_path / f"{number}.tokens"
        write_tokens(
            path, [(pa.array([f"d{row}" for row in range(len(tokens))], pa.string()), tokens)], fingerprint(model)
        )
        found = all_vectors(open_all(model, run(model, {"passages": path}, tmp_path / f"{number}.arrow")))
        assert [len(one) for one in found] == ([2, 3, 2] if tokens else [])


def test_numbers_that_half_precision_does_not_have_are_refused(make_reranker, caches, tmp_path, complaint):
    from safetensors.torch import load_file, save_file

    folder = make_reranker(kind="late_interaction", similarity="dot")
    weights = load_file(folder / "head.safetensors")
    save_file({name: 1e6 * tensor for name, tensor in weights.items()}, folder / "head.safetensors")
    output = tmp_path / "a.arrow"
    line = complaint(encode_tokens.main, options(folder, caches, output), output)
    assert line.startswith(f"{caches['passages']}: found in fp32 a token vector of the text '")
    assert line.endswith(
        "expected finite numbers up to 65504; use precision fp32 and similarity cosine, or train the model again"
    )


def test_a_model_that_has_no_token_vectors_is_refused(make_reranker, caches, tmp_path, complaint):
    folder, output = make_reranker(), tmp_path / "a.arrow"
    line = complaint(encode_tokens.main, options(folder, caches, output), output)
    expected = "found a re-ranker of the kind cross_encoder, expected one of the kind late_interaction; name another"
    assert line == f"{folder}/reranker.json: {expected}"

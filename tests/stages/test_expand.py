import shutil
from functools import partial

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, processors

from cort import expand, pretrained
from cort.formats import tables
from tests.support.common import command_line
from tests.support.released import change_json, change_weights, tokens_of, write_tokenizer

OPTIONS = {"passage-length": 16, "query-length": 8, "queries": 4, "top-k": 5}


def options(model, caches, output, **changes):
    named = {"model": model, "tokens": caches["passages"], "output": output, **OPTIONS}
    return command_line(named, changes)


def run(model, caches, output, **changes):
    assert expand.main(["predict", *options(model, caches, output, **changes)]) == 0
    return output


def rows(*paths):
    return [tuple(row.values()) for path in paths for row in tables.read_table(path, tables.EXPANSIONS).to_pylist()]


@pytest.fixture(scope="module")
def whole(t5, caches, tmp_path_factory):
    """Blocks of 10 passages, in one shard."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expand, "EXPANDED_BLOCK", 10)
        return run(t5, caches, folder / "whole.parquet")


def test_every_passage_has_its_queries_which_the_seed_decides(world, whole, t5, caches, tmp_path):
    expanded = rows(whole)
    assert [doc_id for doc_id, _ in expanded] == world.doc_ids
    queries = [query for _, predicted in expanded for query in predicted]
    assert len(queries) > 3 * len(world.doc_ids)
    assert all(query and query == " ".join(query.split()) and "[" not in query for query in queries)
    assert len(set(queries)) > len(queries) / 2
    other = rows(run(t5, caches, tmp_path / "other", seed=43))
    assert sum(one == another for one, another in zip(expanded, other, strict=True)) < 5


def test_the_number_of_shards_does_not_change_the_result(t5, caches, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(expand, "EXPANDED_BLOCK", 10)
    paths = [run(t5, caches, tmp_path / f"{shard}.parquet", shard=f"{shard}-of-4") for shard in range(1, 5)]
    assert rows(*paths) == rows(whole)
    assert all(rows(path) for path in paths)


@pytest.fixture(scope="module")
def released(world, tmp_path_factory):
    """A folder like T5's: SentencePiece, more embeddings than tokens, generation settings for another task."""
    folder = tmp_path_factory.mktemp("released") / "model"
    pad, size = write_tokenizer(folder, world.texts, "sentencepiece")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    end = tokenizer.token_to_id("</s>")
    templates = {"single": "$A </s>", "pair": "$A </s> $B </s>"}
    tokenizer.post_processor = processors.TemplateProcessing(**templates, special_tokens=[("</s>", end)])
    tokenizer.save(str(folder / "tokenizer.json"))
    torch.manual_seed(7)
    special = {"pad_token_id": pad, "eos_token_id": end, "decoder_start_token_id": pad}
    sizes = {"d_model": 32, "d_kv": 16, "d_ff": 64, "num_layers": 1, "num_heads": 2, "initializer_factor": 3.0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(vocab_size=size + 28, **sizes, **special))
    model.generation_config.no_repeat_ngram_size = 1
    model.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("name", ["t5", "released"])
def test_beam_search_gives_the_queries_of_transformers(request, world, tmp_path, name):
    source, folder = request.getfixturevalue(name), tmp_path / "model"
    assert pretrained.main(["--kind", "expander", "--pretrained", str(source), "--output", str(folder)]) == 0
    tokens_of(tmp_path, folder, world.texts)
    changes = {"beams": 4, "queries": 2, "passage_length": 40, "query_length": 6}
    found = rows(run(folder, {"passages": tmp_path / "passage.arrow"}, tmp_path / "a.parquet", **changes))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    model = transformers.T5ForConditionalGeneration.from_pretrained(source).eval()
    for (_, queries), text in list(zip(found, world.texts, strict=True))[:8]:
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=40).input_ids
        settings = {"max_new_tokens": 6, "num_beams": 4, "num_return_sequences": 2, "no_repeat_ngram_size": 0}
        texts = tokenizer.batch_decode(model.generate(ids, **settings), skip_special_tokens=True)
        assert queries == [text for text in (" ".join(one.split()) for one in texts) if text]


@pytest.mark.usefixtures("bf16")
def test_bf16_predicts_queries_too(t5, caches, tmp_path):
    found = rows(run(t5, caches, tmp_path / "a.parquet", precision="bf16"))
    assert sum(len(queries) for _, queries in found) > 3 * len(found)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"beams": 3}, "--beams: found 3, expected 4 or more, as many as --queries; raise it or lower --queries"),
        ({"passage_length": 2}, "--passage-length: found 2, expected 3 to "),
        ({"shard": "3-of-2"}, "--shard: found '3-of-2', expected i-of-n with 1 <= i <= n; fix it"),
    ],
)
def test_wrong_options_are_refused(t5, caches, tmp_path, complaint, changes, line):
    output = tmp_path / "a.parquet"
    assert complaint(expand.main, ["predict", *options(t5, caches, output, **changes)], output).startswith(line)


def test_infinite_values_are_refused(t5, caches, tmp_path, complaint):
    broken = shutil.copytree(t5, tmp_path / "broken")
    change_weights(broken / "model.safetensors", lambda weights: weights["decoder.final_layer_norm.weight"].fill_(3e38))
    output = tmp_path / "a.parquet"
    line = complaint(expand.main, ["predict", *options(broken, caches, output)], output)
    assert line.startswith(f"{broken}: found NaN or infinite values in fp32, in a batch of ")
    assert line.endswith(", expected finite numbers; use precision fp32 or another model")


def change_config(folder, **settings):
    change_json(folder / "config.json", **settings)


def pickled(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


BROKEN = {
    "pickles alone": (pickled, "found no safetensors weights, expected model.safetensors; convert it with save_pretr"),
    "no start": (partial(change_config, decoder_start_token_id=None), "found no decoder_start_token_id in "),
    "more layers": (partial(change_config, num_decoder_layers=3), "found no tensor 'decoder.block.2.layer.0."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_an_incomplete_model_is_refused(t5, tmp_path, complaint, name):
    alter, words = BROKEN[name]
    folder = shutil.copytree(t5, tmp_path / "broken")
    alter(folder)
    output = tmp_path / "out"
    line = complaint(pretrained.main, ["--kind", "expander", "--pretrained", folder, "--output", output], output)
    assert line.startswith(f"{folder}: ")
    assert words in line


SIZES = {"vocab_size": 160, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 48}


@pytest.mark.parametrize(("decoder", "found"), [(True, "a gpt2, a decoder"), (False, "a bert, an encoder")])
def test_models_other_than_encoder_decoders_are_refused(lm, tmp_path, complaint, decoder, found):
    folder, output = shutil.copytree(lm, tmp_path / "model"), tmp_path / "out"
    if decoder:
        transformers.GPT2LMHeadModel(transformers.GPT2Config(**SIZES)).save_pretrained(folder)
    line = complaint(pretrained.main, ["--kind", "expander", "--pretrained", folder, "--output", output], output)
    assert line == f"{folder}: found {found}, expected an encoder-decoder like T5; name another model"

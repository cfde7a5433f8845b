import shutil

import pytest
import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer, processors

from cort import expand
from cort.formats import tables
from cort.retrieval import expand_predict
from tests.support.common import command_line
from tests.support.released import change_json, change_weights, tokens_of, write_tokenizer


def options(model, caches, output, **changes):
    lengths = {"passage_length": 16, "query_length": 8, "queries": 4, "top_k": 5}
    return {"model": model, "tokens": caches["passages"], "output": output} | lengths | changes


def rows(*paths):
    return [tuple(row.values()) for path in paths for row in tables.read_table(path, tables.EXPANSIONS).to_pylist()]


@pytest.fixture(scope="module")
def whole(t5, caches, tmp_path_factory):
    """Blocks of 10 passages, in one shard."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(expand_predict, "EXPANDED_BLOCK", 10)
        assert expand.main(["predict", *command_line(options(t5, caches, folder / "whole.parquet"))]) == 0
    return folder / "whole.parquet"


def test_every_passage_has_its_queries_which_the_seed_decides(stage, world, whole, t5, caches, tmp_path):
    expanded = rows(whole)
    assert [doc_id for doc_id, _ in expanded] == world.doc_ids
    queries = [query for _, predicted in expanded for query in predicted]
    assert len(queries) > 3 * len(world.doc_ids)
    assert all(query and query == " ".join(query.split()) and "[" not in query for query in queries)
    assert len(set(queries)) > len(queries) / 2
    other = rows(stage("expand predict", **options(t5, caches, tmp_path / "other", seed=43)))
    assert sum(one == another for one, another in zip(expanded, other, strict=True)) < 5


def test_the_number_of_shards_does_not_change_the_result(stage, t5, caches, whole, tmp_path, monkeypatch):
    monkeypatch.setattr(expand_predict, "EXPANDED_BLOCK", 10)
    shards = [options(t5, caches, tmp_path / f"{shard}.parquet", shard=f"{shard}-of-4") for shard in range(1, 5)]
    paths = [stage("expand predict", **shard) for shard in shards]
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


def test_beam_search_gives_the_queries_of_transformers(stage, world, released, tmp_path):
    folder = stage("pretrained", kind="expander", pretrained=released, output=tmp_path / "model")
    tokens_of(tmp_path, folder, world.texts)
    changes = {"beams": 4, "queries": 2, "passage_length": 40, "query_length": 6}
    files = {"passages": tmp_path / "passage.arrow"}
    found = rows(stage("expand predict", **options(folder, files, tmp_path / "a.parquet", **changes)))
    tokenizer = transformers.AutoTokenizer.from_pretrained(released)
    model = transformers.T5ForConditionalGeneration.from_pretrained(released).eval()
    for (_, queries), text in list(zip(found, world.texts, strict=True))[:8]:
        ids = tokenizer(text, return_tensors="pt", truncation=True, max_length=40).input_ids
        settings = {"max_new_tokens": 6, "num_beams": 4, "num_return_sequences": 2, "no_repeat_ngram_size": 0}
        texts = tokenizer.batch_decode(model.generate(ids, **settings), skip_special_tokens=True)
        assert queries == [text for text in (" ".join(one.split()) for one in texts) if text]


@pytest.mark.usefixtures("bf16")
def test_bf16_predicts_queries_too(stage, t5, caches, tmp_path):
    found = rows(stage("expand predict", **options(t5, caches, tmp_path / "a.parquet", precision="bf16")))
    assert sum(len(queries) for _, queries in found) > 3 * len(found)


def test_too_short_passages_are_refused(refused, t5, caches, tmp_path):
    line = refused("expand predict", **options(t5, caches, tmp_path / "a.parquet", passage_length=2))
    assert line.startswith("--passage-length: found 2, ")


def test_infinite_values_are_refused(refused, t5, caches, tmp_path):
    broken = shutil.copytree(t5, tmp_path / "broken")
    change_weights(broken / "model.safetensors", lambda weights: weights["decoder.final_layer_norm.weight"].fill_(3e38))
    line = refused("expand predict", **options(broken, caches, tmp_path / "a.parquet"))
    assert line.startswith(f"{broken}: found NaN or infinite values in fp32, in a batch of ")


def pickled(folder):
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(weights, folder / "pytorch_model.bin")


def decoder(folder):
    sizes = {"vocab_size": 160, "n_embd": 16, "n_layer": 1, "n_head": 2, "n_positions": 48}
    transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).save_pretrained(folder)


BROKEN = {
    "pickles alone": ("t5", pickled, "found no safetensors weights, expected model.safetensors"),
    "no start": (
        "t5",
        lambda folder: change_json(folder / "config.json", decoder_start_token_id=None),
        "found no decoder_start_token_id in ",
    ),
    "a decoder": ("lm", decoder, "found a gpt2, a decoder, expected an encoder-decoder"),
    "an encoder": ("lm", lambda folder: None, "found a bert, an encoder, expected an encoder-decoder"),
}


@pytest.mark.parametrize(("source", "change", "words"), BROKEN.values(), ids=BROKEN)
def test_incomplete_and_other_models_are_refused(request, refused, tmp_path, source, change, words):
    folder = shutil.copytree(request.getfixturevalue(source), tmp_path / "broken")
    change(folder)
    line = refused("pretrained", kind="expander", pretrained=folder, output=tmp_path / "out")
    assert line.startswith(f"{folder}: ") and words in line

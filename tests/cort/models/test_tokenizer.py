import contextlib
import json
import random
import shutil

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

from cort import tokenize
from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.tokenizer import Template, fingerprint, load_template, load_tokenizer
from cort.runtime.errors import InputError
from tests.support.common import write_rows
from tests.support.framing import frame_pair, frame_text


def roberta_folder(folder, pad="<pad>"):
    """Save a word-level tokenizer framed as RoBERTa's: ``<s> a </s>``, ``<s> a </s></s> b </s>``."""
    vocabulary = {"<s>": 0, "<pad>": 1, "</s>": 2, "<unk>": 3, "a": 4, "b": 5}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))  # noqa: S106
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    tokenizer.decoder = decoders.WordPiece()
    folder.mkdir(exist_ok=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"pad_token": pad}))
    return folder


def transformers_tokenizer(folder):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder, use_fast=True)


def plain(folder, text):
    return load_tokenizer(folder).encode(text, add_special_tokens=False).ids


def test_the_template_has_the_special_tokens_of_the_tokenizer(lm, tmp_path):
    assert load_template(lm) == Template(before=(2,), after=(3,), between=(3,), second_segment=1, pad=0)
    assert (load_template(lm).extra, load_template(lm).pair_extra) == (2, 3)
    roberta = Template(before=(0,), after=(2,), between=(2, 2), second_segment=0, pad=1)
    for pad in ("<pad>", {"content": "<pad>", "special": True}):
        assert load_template(roberta_folder(tmp_path, pad)) == roberta
    assert (roberta.extra, roberta.pair_extra) == (2, 4)


def test_truncation_and_padding_of_the_file_are_ignored(lm, world, tmp_path):
    folder = tmp_path / "t"
    shutil.copytree(lm, folder)
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.enable_truncation(4)
    tokenizer.enable_padding(length=50)
    tokenizer.save(str(folder / "tokenizer.json"))
    assert plain(folder, world.texts[0]) == plain(lm, world.texts[0])
    assert len(plain(lm, world.texts[0])) > 4
    assert load_template(folder) == load_template(lm)


@pytest.mark.parametrize("limit", [5, 16, 30, 400])
def test_framed_texts_and_pairs_are_what_transformers_gives(lm, world, limit):
    reference, template = transformers_tokenizer(lm), load_template(lm)
    for text in [*world.texts[:20], "", "unseen zzz, 漢字!"]:
        expected = reference(text, truncation=True, max_length=limit, return_token_type_ids=True)
        tokens, segments = frame_text(plain(lm, text), template, limit)
        assert [tokens.tolist(), segments.tolist()] == [expected["input_ids"], expected["token_type_ids"]]
        if not text:
            # For transformers, an empty passage makes no pair.
            continue
        # Both truncate only the passage, as long as the query is within its own limit.
        options = {"truncation": "only_second", "max_length": limit + 8, "return_token_type_ids": True}
        query = world.query_texts[0].split()[0]
        expected = reference(query, text, **options)
        tokens, segments = frame_pair(plain(lm, query), plain(lm, text), template, limit + 5, limit + 8)
        assert [tokens.tolist(), segments.tolist()] == [expected["input_ids"], expected["token_type_ids"]]
    for query, text in zip(world.query_texts, world.texts, strict=False):
        alone = reference(query, truncation=True, max_length=limit)["input_ids"]
        tokens, _ = frame_pair(plain(lm, query), plain(lm, text), template, limit, limit + 14)
        assert tokens.tolist() == [*alone, *plain(lm, text)[: limit + 14 - len(alone) - 1], 3]


def test_framed_pairs_of_a_roberta_are_what_its_tokenizer_gives(tmp_path):
    folder = roberta_folder(tmp_path / "r")
    expected = Tokenizer.from_file(str(folder / "tokenizer.json")).encode("a b", "b b a")
    tokens, segments = frame_pair(plain(folder, "a b"), plain(folder, "b b a"), load_template(folder), 64, 64)
    assert [tokens.tolist(), segments.tolist()] == [expected.ids, expected.type_ids]


def test_the_fingerprint_is_that_of_plain_tokenization(lm, make_encoder, tmp_path):
    # It frames, truncates and cleans texts, and its segments differ; none of that is stored in token caches.
    assert fingerprint(make_encoder(cleaning="cort")) == fingerprint(lm)
    folder = shutil.copytree(lm, tmp_path / "t")
    (folder / "model.safetensors").unlink()
    assert fingerprint(folder) == fingerprint(lm)
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["vocab"]["zebra"] = len(content["model"]["vocab"])
    (folder / "tokenizer.json").write_text(json.dumps(content))
    other = fingerprint(folder)
    (folder / "config_sentence_transformers.json").write_text('{"prompts": {"query": "ba: "}}')
    assert len({fingerprint(lm), other, fingerprint(folder)}) == 3


def test_flipped_bytes_of_a_tokenizer_are_read_or_refused(tmp_path):
    whole = (roberta_folder(tmp_path) / "tokenizer.json").read_bytes()
    generator = random.Random(4)  # noqa: S311
    for _ in range(100):
        content = bytearray(whole)
        for _ in range(generator.randint(1, 3)):
            content[generator.randrange(len(content))] = generator.randrange(256)
        (tmp_path / "tokenizer.json").write_bytes(content)
        with contextlib.suppress(InputError):
            load_template(tmp_path)


def test_a_tokenizer_without_words_is_refused(tmp_path):
    folder = roberta_folder(tmp_path / "r")
    for vocabulary, words in (
        ({}, "_config.json: found the pad_token"),
        ({"<s>": 0, "<pad>": 1, "</s>": 2}, ".json: "),
    ):
        content = json.loads((folder / "tokenizer.json").read_text())
        content["model"]["vocab"] = vocabulary
        (folder / "tokenizer.json").write_text(json.dumps(content))
        with pytest.raises(InputError, match=f"^{folder}/tokenizer{words}"):
            load_template(folder)


def test_tokenize_writes_the_tokens_of_every_text_in_order(lm, world, caches):
    passages, queries = Tokens(caches["passages"]), Tokens(caches["queries.validation"])
    assert passages.ids.to_pylist() == world.doc_ids
    assert queries.ids.to_pylist() == world.query_ids[20:]
    assert passages.tokenizer == fingerprint(lm)
    reference = transformers_tokenizer(lm)
    for row, text in enumerate(world.texts):
        assert passages[row].tolist() == reference(text, add_special_tokens=False)["input_ids"]


def test_tokenize_gives_the_same_bytes_in_any_batches_and_threads(lm, world, tmp_path, monkeypatch, stage):
    def run(name, **options):
        texts = world.path("passages.parquet")
        return stage("tokenize", tokenizer=lm, texts=texts, output=tmp_path / name, **options)

    one, two = run("one.arrow"), run("two.arrow", threads=2)
    assert one.read_bytes() == two.read_bytes()
    monkeypatch.setattr(tokenize, "ROWS", 7)
    split, whole = Tokens(run("split.arrow")), Tokens(one)
    assert [split[row].tolist() for row in range(60)] == [whole[row].tolist() for row in range(60)]


def test_tokenize_complains(lm, world, tmp_path, refused):
    output, texts = tmp_path / "out.arrow", world.path("passages.parquet")
    found = refused("tokenize", tokenizer=tmp_path, texts=texts, output=output)
    assert found.startswith(f"{tmp_path}: found no tokenizer.json, ")
    assert "missing.parquet" in refused("tokenize", tokenizer=lm, texts=tmp_path / "missing.parquet", output=output)
    found = refused("tokenize", tokenizer=lm, texts=world.path("qrels.parquet"), output=output)
    assert "qrels.parquet: found columns (text: missing)" in found


def test_an_empty_table_gives_an_empty_cache(lm, tmp_path, stage):
    texts = write_rows(tmp_path / "none.parquet", tables.PASSAGES, [])
    assert len(Tokens(stage("tokenize", tokenizer=lm, texts=texts, output=tmp_path / "none.arrow"))) == 0

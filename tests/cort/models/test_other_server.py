"""Vectors and scores of a server that others wrote are those of the same weights here.

The server is Infinity, in an environment of its own (`pip install 'infinity-emb[torch,server]==0.0.78'`); its command
is in the variable INFINITY, such as INFINITY=/path/to/infinity_emb.
"""

import os
import socket
import subprocess
from contextlib import contextmanager

import httpx
import numpy as np
import pytest

from cort import pretrained
from cort.config.collection import TextLimits
from cort.config.models import Service
from cort.models.embeddings import embed_now
from cort.models.served_scores import score_now
from tests.support import released as support
from tests.support.common import wait_until
from tests.support.layouts import take_in
from tests.support.released import change_json, write_like, write_modules

COMMAND = os.environ.get("INFINITY")
#: seconds that it may take to start
PATIENCE = 900
pytestmark = [
    pytest.mark.exhaustive,
    pytest.mark.skipif(COMMAND is None, reason="INFINITY is not set: no other server of models"),
]


def answers(address):
    try:
        return httpx.get(f"{address}/health", timeout=5).is_success
    except httpx.TransportError:
        return False


@contextmanager
def served(log, **folders):
    """Serve model folders by their names; the address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = [COMMAND, "v2", "--port", str(port), "--engine", "torch", "--device", "cpu", "--url-prefix", "/v1"]
    for name, folder in folders.items():
        words += ["--model-id", str(folder), "--served-model-name", name, "--dtype", "float32"]
        words += ["--no-bettertransformer", "--no-model-warmup"]
    offline = os.environ | {"HF_HUB_OFFLINE": "1"}
    with open(log, "wb") as file, subprocess.Popen(words, stdout=file, stderr=file, env=offline) as process:
        try:
            address = f"http://127.0.0.1:{port}"
            wait_until(lambda: process.poll() is not None or answers(address), "the server", PATIENCE)
            assert process.poll() is None, log.read_text("utf-8", "replace")[-3000:]
            yield f"{address}/v1"
        finally:
            process.terminate()


def test_vectors_and_scores_are_those_of_the_same_weights_here(world, lm, tmp_path, monkeypatch, record_property):
    small, cross, model = (tmp_path / name for name in ("small", "cross", "model"))
    small.mkdir()
    cross.mkdir()
    write_modules(write_like(small, lm, "bert", initializer_range=0.3, max_position_embeddings=64), length=64)
    write_like(cross, lm, "bert", "AutoModelForSequenceClassification", num_labels=1, initializer_range=0.3)
    for folder in (small, cross):
        # As releases of transformers before 5 name it, which the server has; this one tells the texts of a pair apart.
        change_json(folder / "tokenizer_config.json", tokenizer_class="BertTokenizerFast")
    texts, query, passages = [*world.texts[:20], "ba " * 200, "x"], world.texts[0], [*world.texts[1:20], "x"]
    with served(tmp_path / "server.log", small=small, cross=cross) as address:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
        monkeypatch.setenv("OPENAI_API_KEY", "none")
        vectors = embed_now(texts, Service(endpoint="small"))
        scores = score_now(query, passages, "cross", TextLimits())
    encoder = take_in(small, tmp_path / "encoder")
    ours = support.vectors_of(encoder, support.tokens_of(tmp_path, encoder, texts, "passage"), "passage")
    assert ours.std(0).max() > 1e-3
    record_property("vectors", f"{np.abs(vectors - ours).max():.1e} of {ours.shape}")
    assert np.abs(vectors - ours).max() < 1e-5
    assert pretrained.main(["--kind", "cross_encoder", "--pretrained", str(cross), "--output", str(model)]) == 0
    queries = support.tokens_of(tmp_path, model, [query] * len(passages), "query")
    logits = support.logits_of(model, queries, support.tokens_of(tmp_path, model, passages))
    # The server sends the sigmoid of a score.
    expected = 1 / (1 + np.exp(-logits))
    record_property("scores", f"{np.abs(scores - expected).max():.1e}, {expected.min():.3f} to {expected.max():.3f}")
    assert np.abs(scores - expected).max() < 1e-5
    assert np.array_equal(np.argsort(scores), np.argsort(logits))

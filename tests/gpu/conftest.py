"""Every path on a GPU against the CPU: the stages, with models of random weights and texts of random tokens.

Without a GPU, the CPU takes its place, which tries the tests themselves: the quick ones, and with CHECK_DEVICE=cpu all.
"""

import contextlib
import importlib
import os
from functools import cache
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.support.training import write_examples

# As a training sets it, which here is not what uses the GPU first.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
DEVICE = os.environ.get("CHECK_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu")
if DEVICE == "cuda" and not torch.cuda.is_available():
    pytest.exit("found no GPU that torch can use, expected one; DEVICE=cpu tries the tests without", 1)


@pytest.fixture(scope="session")
def device():
    return DEVICE


@pytest.fixture(scope="session")
def gpu():
    """Skip what a CPU cannot do."""
    if DEVICE == "cpu":
        pytest.skip("not on a CPU")


@pytest.fixture(scope="session")
def long():
    """Skip what a CPU takes long to try, unless CHECK_DEVICE=cpu asks for all."""
    if DEVICE == "cpu" and "CHECK_DEVICE" not in os.environ:
        pytest.skip("not on a CPU, unless CHECK_DEVICE=cpu")


@pytest.fixture(scope="session")
def stage(tmp_path_factory):
    """Run a stage in this process on a device; its log."""
    from accelerate.state import AcceleratorState
    from torch import get_num_threads, set_num_threads, use_deterministic_algorithms

    from cort.runtime import devices

    # Asking again which GPUs there are takes a second.
    gpus = cache(devices._list_gpus)

    def run(name, device, argv, status=0):
        log, threads = tmp_path_factory.mktemp("log") / "log", get_num_threads()
        with contextlib.ExitStack() as stack:
            stack.enter_context(patch.object(devices, "_list_gpus", gpus))
            if device == "cpu":
                stack.enter_context(patch("torch.cuda.is_available", return_value=False))
                stack.enter_context(patch.dict(os.environ, ACCELERATE_USE_CPU="true"))
            AcceleratorState._reset_state(reset_partial_state=True)
            try:
                found = importlib.import_module(f"cort.{name}").main([*map(str, argv), "--log", str(log)])
            finally:
                AcceleratorState._reset_state(reset_partial_state=True)
                use_deterministic_algorithms(False)
                set_num_threads(threads)
        assert found == status, log.read_text("utf-8")
        return log.read_text("utf-8")

    return run


@pytest.fixture(scope="session")
def plain(make_base_model):
    """A base model without chance, so that two devices can be compared; larger weights than usual tell texts apart."""
    dropout = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    return make_base_model(hidden_size=64, max_position_embeddings=512, initializer_range=0.2, **dropout)


@pytest.fixture(scope="session")
def long_caches(world, plain, tmp_path_factory):
    """Token caches like `caches`, of random tokens and as long as passages and queries of MS MARCO."""
    from cort.formats.shards import write_tokens
    from cort.models.tokenizer import fingerprint

    folder, generator = tmp_path_factory.mktemp("long"), np.random.default_rng(3)
    shapes = {"passages": (world.doc_ids, 68), "queries.train": (world.query_ids[:20], 6)}
    shapes["queries.validation"] = (world.query_ids[20:], 6)
    for name, (ids, median) in shapes.items():
        counts = generator.lognormal(np.log(median), 0.4, len(ids)).round().clip(2, 300).astype(int)
        texts = [generator.integers(5, 100, count).tolist() for count in counts]
        write_tokens(folder / f"{name}.arrow", [(pa.array(ids), texts)], fingerprint(plain))
    return {name: str(folder / f"{name}.arrow") for name in shapes}


@pytest.fixture(scope="session")
def examples(world, tmp_path_factory):
    return write_examples(world, tmp_path_factory.mktemp("examples"), epochs=2, seed=7)


@pytest.fixture(scope="session")
def rerankers(make_reranker, plain):
    """Make a re-ranker of each kind, once."""
    shapes = {"cross_encoder": {}, "late_interaction": {"dimension": 16}, "knrm": {}, "conv_knrm": {"filters": 8}}
    return cache(lambda kind: make_reranker(32, 180, model=plain, kind=kind, **shapes[kind]))


@pytest.fixture(scope="session")
def difference():
    """Length of the difference of two arrays as a share of the second one's."""

    def share(one, other):
        one, other = (np.asarray(some, np.float64) for some in (one, other))
        return float(np.linalg.norm(one - other) / np.linalg.norm(other))

    return share

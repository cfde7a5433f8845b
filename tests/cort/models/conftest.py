import functools

import pytest

from cort.models.batching import TOKEN_BUDGETS
from tests.support.layers import TYPES


@pytest.fixture(scope="session")
def of_type(make_base_model):
    """Make a base model of an architecture, once."""
    return functools.cache(lambda kind: make_base_model(model_type=kind, **TYPES[kind]))


@pytest.fixture
def cache(tmp_path):
    """File of a service's answers."""
    return str(tmp_path / "cache" / "answers.sqlite")


@pytest.fixture
def small_batches(monkeypatch):
    """Let a pass through a model have 100 tokens."""
    monkeypatch.setitem(TOKEN_BUDGETS, "cpu", 100)

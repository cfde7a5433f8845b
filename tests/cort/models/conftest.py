from functools import cache

import pytest

from tests.support.layers import TYPES


@pytest.fixture(scope="session")
def of_type(make_base_model):
    """Make a base model of an architecture, once."""
    return cache(lambda kind: make_base_model(model_type=kind, **TYPES[kind]))

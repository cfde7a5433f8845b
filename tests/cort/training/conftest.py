from functools import partial

import pytest

from tests.support.training import long_training_options, write_examples


@pytest.fixture(scope="session")
def stage_options(world, lm, caches, tmp_path_factory):
    """Options of a training of 60 updates; call it with the stage, the output folder, and changes."""
    examples = write_examples(world, tmp_path_factory.mktemp("examples"), epochs=18, seed=42)
    return partial(long_training_options, lm, caches, examples)

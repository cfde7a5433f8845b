"""Errors that people read."""

import pytest

from cort.runtime.errors import InputError


def line_of(call, *given, **named):
    """The one line with which a call refuses what it was given."""
    with pytest.raises(InputError) as error:
        call(*given, **named)
    line = str(error.value)
    assert "\n" not in line
    return line

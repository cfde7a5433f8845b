"""Where options say that files are to be: refused before anything is computed, if they cannot be there."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

from cort.system.errors import input_error, shorten
from cort.system.options import texts_of

#: metavar of options that name folders
FOLDER = "FOLDER"
NAME_ANOTHER = "name another"


def check_places(options: Any) -> None:
    """Refuse pipes and devices, which can be read once or without end, and outputs where something else is.

    :raises InputError: names the first that is wrong; so of several outputs none is written.
    """
    used = set()
    for word in texts_of(options, outputs=False):
        for place in (word, word.partition("=")[2]):
            if place and os.path.exists(place):
                _refuse_device(place)
                used.add(os.path.realpath(place))
    for field in dataclasses.fields(options):
        place = getattr(options, field.name)
        if field.name.startswith("output") and place is not None:
            _check_output(f"--{field.name.replace('_', '-')}", place, field.metadata.get("metavar") == FOLDER)
            if (real := os.path.realpath(place)) in used:
                raise input_error(place, "an input or another output", "a place of its own", NAME_ANOTHER)
            used.add(real)


def _refuse_device(place: str) -> None:
    if not os.path.isfile(place) and not os.path.isdir(place):
        raise input_error(place, "a pipe or device", "a file", "write what it gives to a file, and name that")


def _check_output(option: str, place: str, is_folder: bool) -> None:
    if not place:
        raise input_error(option, "nothing", "a folder" if is_folder else "a file", "name one")
    if os.path.exists(place):
        _refuse_device(place)
        if os.path.isdir(place) != is_folder:
            found, expected = ("a file", "a folder") if is_folder else ("a folder", "a file")
            raise input_error(place, found, f"{expected}, to be written", NAME_ANOTHER)
    above = next((one for one in Path(place).parents if os.path.lexists(one)), Path())
    if not above.is_dir():
        raise input_error(place, f"no folder at {shorten(str(above))}", "one", NAME_ANOTHER)

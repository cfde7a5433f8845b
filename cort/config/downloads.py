"""Files named in a config: checks of their names, and the paths of public ones, `download:NAME`."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from typing import Any

from cort.config import paths
from cort.config.entries import leaves
from cort.config.root import Root
from cort.downloads.catalog import load_catalog
from cort.runtime.sections import Section, plain
from cort.systems.results import Results

PREFIX = "download:"
# Sections that name no files.
WITHOUT_FILES = ("dataset", "title", "base_models", "downloads")


def resolve(root: Root) -> Root:
    """Copy settings, with the names of public files replaced by their paths."""

    def visit(value: Any) -> Any:
        if isinstance(value, Section):
            return value.model_copy(update={key: visit(part) for key, part in value})
        if isinstance(value, dict):
            return {key: visit(part) for key, part in value.items()}
        if isinstance(value, tuple):
            return tuple(map(visit, value))
        return path_of(value, root.dataset) if isinstance(value, str) else value

    return root.model_copy(update={key: visit(value) for key, value in root if key not in WITHOUT_FILES})


def path_of(value: str, dataset: str) -> str:
    """Return the path of a raw file in the config, or where a public file will be."""
    if not value.startswith(PREFIX):
        return value
    source, _, file = value.removeprefix(PREFIX).partition("/")
    return paths.PUBLIC_FILE.format(dataset=dataset, source=source, file=file)


def named_files(results: Results) -> Iterator[tuple[str, str]]:
    """Yield (place in the config, name) of every public file; `{split}` stands for each ranked split."""
    files = {key: value for key, value in plain(results.root).items() if key not in WITHOUT_FILES}
    for place, value in leaves(files):
        for name in value if isinstance(value, list) else [value]:
            if isinstance(name, str) and name.startswith(PREFIX):
                whole = name.removeprefix(PREFIX)
                names = [whole.replace("{split}", split) for split in results.ranked_splits if "{split}" in whole]
                yield from ((place, file) for file in names or [whole])


def check_names(results: Results) -> Iterator[str]:
    """Yield a line for each name that is not a public file, or is an archive of several files."""
    catalog = load_catalog()
    known = [name for name in catalog.files if name not in catalog.archives]
    for place, name in named_files(results):
        if name in catalog.archives:
            members = [file for file in known if catalog.files[file].archive == name]
            yield f"{place}: found the archive {name}, expected a file in it; name one of {', '.join(members)}"
        elif name not in known:
            near = difflib.get_close_matches(name, known, 1)
            fix = f"did you mean {PREFIX}{near[0]}?" if near else "name one of those, or a file of your own"
            yield f"{place}: found {PREFIX}{name}, expected a name in cort/downloads/catalog.yaml; {fix}"


def file_pattern() -> str:
    """Return a regular expression, with look-behind, for the names of public files."""
    names = (name.split("/") for name in load_catalog().files)
    return "|".join(f"(?<=/{re.escape(source)}/){re.escape(file)}" for source, file in names)

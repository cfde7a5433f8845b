"""Faster imports: without libraries that are not needed, and without garbage collection."""

import atexit
import gc
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any


class _Absent(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return None


@contextmanager
def absent(*names: str) -> Iterator[None]:
    """Make modules that are not yet imported appear not to be installed."""
    finder = _Absent(names)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _Placeholder(ModuleType):
    """A module whose names are empty classes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__spec__, self.__path__ = ModuleSpec(name, None, is_package=True), []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


@contextmanager
def placeholders(*names: str) -> Iterator[None]:
    """Let other modules import names from modules that they will not use, and that are not yet imported."""
    missing = [name for name in names if name not in sys.modules]
    sys.modules.update({name: _Placeholder(name) for name in missing})
    try:
        yield
    finally:
        for name in missing:
            del sys.modules[name]


@contextmanager
def uncollected() -> Iterator[None]:
    """Pause garbage collection, which takes a quarter of the time of importing transformers and finds little."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def sentence_transformers() -> Any:
    """Import sentence-transformers without what only its training, its evaluation and its model cards need."""
    with uncollected(), placeholders("datasets", "sklearn", "sklearn.metrics", "scipy.optimize"):
        import sentence_transformers
        from sentence_transformers.base import model_card
        from torch._dynamo.utils import dump_compile_times

    vars(model_card)["is_datasets_available"] = lambda: False
    # At the end of the process, it would import a library for tables that are not shown.
    atexit.unregister(dump_compile_times)
    return sentence_transformers

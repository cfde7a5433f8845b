"""What a result depends on, as one hash: options, content of files, the model, and the program itself."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

import cort
from cort.models.transformer import model_fingerprint
from cort.system.files import checksum

ROOT = Path(cort.__file__).parent
#: libraries whose release can change what a model computes
LIBRARIES = ("accelerate", "numpy", "torch", "transformers")


def identity(module: str, options: Mapping[str, object], files: Iterable[str], model: str) -> str:
    """Name a computation by all that decides its result.

    :param module: the stage; the source of all modules of this package that it can import counts.
    :param options: those that change the result, without paths.
    :param files: paths whose content counts, in a fixed order.
    :param model: folder of the model it works with or starts from.
    """
    parts = {
        "options": dict(options),
        "files": [checksum(path) for path in files],
        "model": model_fingerprint(model),
        "source": {name: checksum(path) for name, path in sorted(imported_modules(module).items())},
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def imported_modules(module: str) -> dict[str, Path]:
    """Files of `module` and of all modules of this package that it can import, at once or later, by name."""
    found: dict[str, Path] = {}
    waiting = [module]
    while waiting:
        name = waiting.pop()
        path = _file_of(name)
        if path is not None and name not in found:
            found[name] = path
            waiting.extend(_imports(path))
    return found


def _imports(path: Path) -> Iterator[str]:
    """Names a source file imports from this package: modules, and what may be a module or a name inside one."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _file_of(name: str) -> Path | None:
    package, *parts = name.split(".")
    if package != cort.__name__:
        return None
    path = ROOT.joinpath(*parts)
    candidates = (path.with_suffix(".py"), path / "__init__.py") if parts else (path / "__init__.py",)
    return next((candidate for candidate in candidates if candidate.is_file()), None)

"""What a result depends on, as one hash: options, content of files, the model, and the program itself."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.metadata import version

from cort.models.transformer import model_fingerprint
from cort.system.files import checksum
from cort.system.program import program_of

#: libraries whose release can change what a model computes
LIBRARIES = ("accelerate", "numpy", "torch", "transformers")


def identity(module: str, options: Mapping[str, object], files: Iterable[str], model: str) -> str:
    """Name a computation by all that decides its result.

    :param module: the stage; what it and all that it imports does counts.
    :param options: those that change the result, without paths.
    :param files: paths whose content counts, in a fixed order.
    :param model: folder of the model it works with or starts from.
    """
    parts = {
        "options": dict(options),
        "files": [checksum(path) for path in files],
        "model": model_fingerprint(model),
        "source": program_of(module),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()

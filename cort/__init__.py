"""CoRT: neural first-stage ranking that complements a term-based ranker, from raw files to tables.

One module per stage (``python -m cort.<stage> --help``), each usable without the workflow. `cort.open` reads results.
"""

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cort.api import open as open

__version__ = "0.3.0"

if os.environ.get("CORT_ATTACHED"):
    # Ctrl-C also comes to the jobs of a workflow, which speaks for them, and may come while they import modules.
    _show = sys.excepthook
    sys.excepthook = lambda kind, *more: None if issubclass(kind, KeyboardInterrupt) else _show(kind, *more)


def __getattr__(name: str) -> Any:
    """Import the interface to results when it is first used, so that no stage depends on it."""
    if name == "open":
        return import_module(".api", __name__).open
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

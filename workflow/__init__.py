"""The workflow: rules, their inputs and settings, and planning."""

import sys
from types import TracebackType

_show = sys.excepthook


def _end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    if issubclass(kind, KeyboardInterrupt):
        sys.stderr.write("interrupted; the same command goes on\n")
    else:
        _show(kind, error, trace)


# Here, because importing the modules of this package takes seconds, in which Ctrl-C may come.
sys.excepthook = _end

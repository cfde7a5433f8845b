"""What the command lines of all stages share: parser, log, one-line errors, exit status.

A stage module has a section ``Options`` (see `cort/runtime/command_line.py`), ``stage(options)`` and
``main = cli.main_of(Options, stage)``.
"""

import argparse
import atexit
import gc
import logging
import os
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TypeVar

from cort import __version__
from cort.runtime.claims import claiming
from cort.runtime.command_line import Parser, parse_options, places_of
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import DISK_IS_FULL
from cort.runtime.interruption import Interrupted, end_with_parent, unwind_on_signals
from cort.runtime.memory import peak_memory
from cort.runtime.progress import CONSOLE, showing
from cort.runtime.sections import Section

log = logging.getLogger(__name__)

Options = TypeVar("Options", bound=Section)

NAME_ANOTHER = "name another"


def check_places(options: Section) -> None:
    """Refuse pipes and devices, which can be read only once or endlessly, and outputs that overwrite other files used.

    :raises InputError: for the first wrong place, before any output is written.
    """
    used = set()
    inputs, outputs = (
        [place for place in places_of(options) if place.is_output == is_output] for is_output in (False, True)
    )
    for path in (place.path for place in inputs if os.path.exists(place.path)):
        _refuse_device(path)
        used.add(os.path.realpath(path))
    for _, form, path in outputs:
        if os.path.exists(path):
            _refuse_device(path)
            found, wanted = (("a file", "a folder")[flag] for flag in (os.path.isdir(path), form == "FOLDER"))
            if found != wanted:
                raise input_error(path, found, f"{wanted} to write", NAME_ANOTHER)
        if (real := os.path.realpath(path)) in used:
            raise input_error(path, "an input or another output", "a place of its own", NAME_ANOTHER)
        used.add(real)


def _refuse_device(place: str) -> None:
    if not os.path.isfile(place) and not os.path.isdir(place):
        raise input_error(place, "a pipe or device", "a file", "write its content to a file, and name that")


def parser_of(options: type[Section], prog: str = "") -> Parser:
    """Create the parser of a stage; its help is the docstring of the module that has the options."""
    module = sys.modules[options.__module__]
    prog = prog or f"python -m {module.__spec__.name if module.__spec__ else module.__name__}"
    form = argparse.RawDescriptionHelpFormatter
    parser = Parser(prog=prog, description=module.__doc__, formatter_class=form)
    parser.add_argument("--log", metavar="FILE", help="also write the log to this file")
    parser.add_section(options)
    return parser


def main_of(options: type[Options], stage: Callable[[Options], None], prog: str = "") -> Callable[..., int]:
    """Create a stage's ``main(argv)``, which parses, runs the stage, and returns the exit status.

    The exit status is 1 after a one-line error that the user can fix, and 2 after a traceback.
    """

    def main(argv: Sequence[str] | None = None) -> int:
        parser = parser_of(options, prog)
        args = parser.parse_args(argv)

        def work() -> None:
            values = parse_options(options, args)
            check_places(values)
            with claiming([place.path for place in places_of(values) if place.is_output]):
                stage(values)

        return _run(parser.prog, work, args.log, sys.argv[1:] if argv is None else argv)

    return main


def _run(prog: str, work: Callable[[], None], log_file: str | None, words: Sequence[str]) -> int:
    # Keep progress bars and notes of libraries that are imported later out of the log.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # The system frees the memory anyway: a last garbage collection takes a second if torch is imported.
    atexit.register(gc.freeze)
    unwind_on_signals()
    end_with_parent()
    started = time.perf_counter()
    try:
        _configure_logging(log_file)
        log.info("cort %s: %s %s", __version__, prog, shlex.join(words))
        with showing(log_file) if log_file and CONSOLE in os.environ else nullcontext():
            work()
    except InputError as error:
        log.error("%s", error)
        return 1
    except OSError as error:
        # Missing files, full disks, denied access: the operating system's message says what is wrong.
        remedy = "; free space and call again" if error.errno in DISK_IS_FULL else ""
        log.error("%s: %s%s", error.filename or prog, error.strerror or error, remedy)
        return 1
    except Interrupted as end:
        if str(end):
            log.warning("%s", end)
        return end.status
    except KeyboardInterrupt:
        log.error("%s interrupted; call it again", prog)
        return 128 + signal.SIGINT
    except Exception:
        # Logged, so that the traceback reaches the log file as well as the terminal.
        log.exception("%s failed; this is a bug in the program, not a fault of its input", prog)
        return 2
    log.info("done in %.1f s, peak memory %d MB", time.perf_counter() - started, peak_memory() >> 20)
    return 0


def _configure_logging(path: str | None) -> None:
    console = logging.StreamHandler(sys.stderr)
    handlers: list[logging.Handler] = [console]
    if path is not None:
        console.setLevel(os.environ.get(CONSOLE, "INFO"))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Truncated, then appended to, because several processes of a stage may write to it.
        Path(path).write_bytes(b"")
        handlers.append(logging.FileHandler(path, mode="a", encoding="utf-8", errors="backslashreplace"))
    template = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=template, datefmt="%H:%M:%S", handlers=handlers, force=True)

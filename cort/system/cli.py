"""What every stage's command line shares: parser, log, one-line errors, exit status.

A stage module has a dataclass ``Options`` (see `cort/system/options.py`), ``stage(options)`` and
``main = cli.main_of(Options, stage)``.
"""

from __future__ import annotations

import argparse
import atexit
import dataclasses
import gc
import inspect
import logging
import os
import resource
import shlex
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cort import __version__
from cort.system.checksums import verify
from cort.system.errors import InputError, input_error, shorten
from cort.system.files import DISK_IS_FULL, record_checksums
from cort.system.interruption import Interrupted, unwind_on_signals
from cort.system.options import add_options, read_options, texts_of

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


log = logging.getLogger(__name__)

Options = TypeVar("Options")

#: environment variable: the least level of what is said on the terminal, where a log file has all
CONSOLE = "CORT_CONSOLE"


def make_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Parser of the stage `module` (``"cort.encode"``) with its docstring as help, and the options all stages have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", metavar="FILE", help="write the log to this file too")
    return parser


def parser_of(options: type[Any], command: str = "") -> argparse.ArgumentParser:
    """Parser of the stage whose ``Options`` these are, with its module's docstring as help, of a command its own."""
    module = sys.modules[options.__module__]
    name = module.__spec__.name if module.__spec__ else module.__name__
    parser = make_parser(f"{name} {command}".rstrip(), inspect.getdoc(options) if command else module.__doc__)
    add_options(parser, options)
    return parser


def main_of(options: type[Options], stage: Callable[[Options], None], command: str = "") -> Callable[..., int]:
    """Make a stage's ``main(argv)``, which parses, runs the stage, and returns the exit status.

    What the options name must be as its record has it; what they name for output gets a record.
    """

    def checked(args: argparse.Namespace) -> None:
        found = read_options(options, args)
        check_places(found)
        verify(texts_of(found, outputs=False))
        stage(found)
        record_checksums(texts_of(found, outputs=True))

    def main(argv: Sequence[str] | None = None) -> int:
        return run(parser_of(options, command), checked, argv)

    return main


def run(
    parser: argparse.ArgumentParser, stage: Callable[[argparse.Namespace], None], argv: Sequence[str] | None = None
) -> int:
    """Parse, run `stage`, log what was done; 0, or 1 with a one-line error when the input is at fault."""
    args = parser.parse_args(argv)
    # The bars and notes of libraries, not yet imported here, stay out of the log.
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    # Memory is freed with the process: to look for garbage in the end takes a second where torch was imported.
    atexit.register(gc.freeze)
    unwind_on_signals()
    started = time.perf_counter()
    try:
        _configure_logging(args.log)
        log.info("cort %s: %s %s", __version__, parser.prog, shlex.join(sys.argv[1:] if argv is None else argv))
        stage(args)
    except InputError as error:
        log.error("%s", error)
        return 1
    except OSError as error:
        # Missing files, full disks, denied access: the operating system's own words name the file.
        remedy = "; free space and call again" if error.errno in DISK_IS_FULL else ""
        log.error("%s: %s%s", error.filename or parser.prog, error.strerror or error, remedy)
        return 1
    except Interrupted as end:
        if str(end):
            log.warning("%s", end)
        return end.status
    except KeyboardInterrupt:
        log.error("%s interrupted; call it again", parser.prog)
        return 128 + signal.SIGINT
    except Exception:
        # Logged so that the traceback of a defect reaches the log file as well as the terminal.
        log.exception("%s failed; this is a defect of the program, not of its input", parser.prog)
        return 2
    log.info("done in %.1f s, peak memory %d MB", time.perf_counter() - started, peak_memory_mb())
    return 0


def check_depths(depths: Sequence[int]) -> None:
    """Refuse values of ``--depths`` that do not increase from 1 or more."""
    if min(depths) < 1 or list(depths) != sorted(set(depths)):
        found = " ".join(map(str, depths))
        raise input_error("--depths", found, "increasing numbers from 1", "give each depth once, in order")


def peak_memory_mb() -> int:
    """Largest resident set of this process or of any child it waited for, in MB."""
    return max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) // 1024


def _configure_logging(path: str | None) -> None:
    console = logging.StreamHandler(sys.stderr)
    handlers: list[logging.Handler] = [console]
    if path is not None:
        console.setLevel(os.environ.get(CONSOLE, "INFO"))
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        # Emptied, then appended to: the processes of one stage may write to it together.
        Path(path).write_bytes(b"")
        handlers.append(logging.FileHandler(path, mode="a", encoding="utf-8", errors="backslashreplace"))
    form = "%(asctime)s %(levelname)s %(message)s"
    logging.basicConfig(level=logging.INFO, format=form, datefmt="%H:%M:%S", handlers=handlers, force=True)

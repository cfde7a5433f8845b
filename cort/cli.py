"""What every stage's command line shares: parser, log, one-line errors, exit status.

A stage module has ``build_parser()``, ``stage(args)`` and ``main(argv)``, which is
``return cli.run(build_parser(), stage, argv)``.
"""

from __future__ import annotations

import argparse
import logging
import resource
import shlex
import sys
import time
from collections.abc import Callable, Sequence

from cort import __version__
from cort.errors import InputError

log = logging.getLogger(__name__)


def make_parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """Parser of the stage `module` (``"cort.encode"``) with its docstring as help, and the options all stages have."""
    parser = argparse.ArgumentParser(
        prog=f"python -m {module}", description=doc, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--log", metavar="FILE", help="write the log to this file too")
    return parser


def run(
    parser: argparse.ArgumentParser, stage: Callable[[argparse.Namespace], None], argv: Sequence[str] | None = None
) -> int:
    """Parse, run `stage`, log what was done; 0, or 1 with a one-line error when the input is at fault."""
    args = parser.parse_args(argv)
    _configure_logging(args.log)
    started = time.perf_counter()
    log.info("cort %s: %s %s", __version__, parser.prog, shlex.join(sys.argv[1:] if argv is None else argv))
    try:
        stage(args)
    except InputError as error:
        log.error("%s", error)
        return 1
    except OSError as error:
        # Missing files, full disks, denied access: the operating system's own words name the file.
        log.error("%s: %s", error.filename or parser.prog, error.strerror or error)
        return 1
    except Exception:
        # Logged so that the traceback of a defect reaches the log file as well as the terminal.
        log.exception("%s failed; this is a defect of the program, not of its input", parser.prog)
        return 2
    log.info("done in %.1f s, peak memory %d MB", time.perf_counter() - started, peak_memory_mb())
    return 0


def peak_memory_mb() -> int:
    """Largest resident set of this process or of any child it waited for, in MB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return max(own, children) // 1024


def _configure_logging(path: str | None) -> None:
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if path is not None:
        handlers.append(logging.FileHandler(path, mode="w", encoding="utf-8"))
    logging.basicConfig(
        level=logging.INFO,
        format="%(asctime)s %(levelname)s %(message)s",
        datefmt="%H:%M:%S",
        handlers=handlers,
        force=True,
    )

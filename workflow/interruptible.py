"""Run Snakemake so that Ctrl-C ends it with a line that says how to go on, and with the status of Ctrl-C.

Usage: python -m workflow.interruptible OPTIONS OF SNAKEMAKE
"""

from __future__ import annotations

import signal
from types import FrameType


def main() -> None:
    """Run it; raise KeyboardInterrupt at the end if there was one, which it takes for a failure."""
    received = []

    def interrupt(number: int, frame: FrameType | None) -> None:
        received.append(number)
        signal.default_int_handler(number, frame)

    # A background job of a shell ignores Ctrl-C.
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
    try:
        from snakemake.cli import main as snakemake

        snakemake()
    finally:
        if received:
            raise KeyboardInterrupt


if __name__ == "__main__":
    main()

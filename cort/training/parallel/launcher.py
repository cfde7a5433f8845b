"""One process per GPU: a stage works here, or workers run it again that this starts, passes signals on to, and ends.

torchrun does the same, but its store listens on all network devices, and it kills workers that need more than 30 s to
write a checkpoint.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, TypeVar

from cort.system.devices import lease
from cort.system.errors import input_error
from cort.system.interruption import REQUESTS, Interrupted
from cort.system.options import to_words
from cort.training.parallel.worker import LAUNCHER, LOG, is_worker, work_together
from cort.training.settings import TrainingOptions

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

Options = TypeVar("Options", bound=TrainingOptions)
Worker = subprocess.Popen[bytes]

LOOPBACK = "127.0.0.1"
# What the environment says goes first. Workers of one machine need no other network, and nobody needs hints for
# developers, which torch writes from beyond the reach of Python's filters.
DEFAULTS = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
SECONDS_BETWEEN_LOOKS = 0.1
# Workers that another one's failure ended get so many seconds to leave.
SECONDS_TO_END = 30


def run(module: str, options: Options, work: Callable[[Options], None]) -> None:
    """Do `work` in this process, or have several processes run the stage `module` with the same options."""
    if is_worker():
        work_together(options, work)
        return
    with lease(options.processes):
        processes = usable_processes(options.processes)
        if processes == 1:
            work(options)
        else:
            launch(module, options, processes)


def usable_processes(wanted: int) -> int:
    """Take as many processes as there are GPUs at most; the option's help says how to use the CPU."""
    if wanted < 1:
        raise input_error("--processes", str(wanted), "1 or more", "change it")
    if wanted == 1 or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {"1", "true", "yes", "on"}:
        return wanted
    import torch

    found = torch.cuda.device_count()
    if found < wanted:
        log.info("%d processes asked for, %d GPUs found", wanted, found)
    return max(min(wanted, found), 1)


def launch(module: str, options: TrainingOptions, processes: int) -> None:
    """Have `processes` workers run the stage `module`, and wait.

    :raises Interrupted: they ended otherwise than well; the status is theirs.
    """
    threads = max(options.threads // processes, 1)
    log.info("%d processes of %d threads", processes, threads)
    words = to_words(replace(options, threads=threads))
    command = [sys.executable, "-m", "cort.training.parallel.worker", module, *words]
    store = open_store()
    environment = {
        **DEFAULTS,
        **os.environ,
        LAUNCHER: str(os.getpid()),
        LOG: _log_file(),
        "OMP_NUM_THREADS": str(threads),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    workers: list[Worker] = []
    with _passing_signals_on(workers) as passed:
        try:
            for rank in map(str, range(processes)):
                # In a session of its own, so that a Ctrl-C comes from the launcher alone.
                ranked = {**environment, "RANK": rank, "LOCAL_RANK": rank}
                workers.append(subprocess.Popen(command, env=ranked, start_new_session=True))
            codes = _wait(workers)
        finally:
            _end(workers)
    if any(codes):
        raise Interrupted("", _status(codes, passed))


def open_store() -> TCPStore:
    """Open the store in which the workers meet, on the loopback device only."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _log_file() -> str:
    handlers = logging.getLogger().handlers
    return next((handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)), "")


def _wait(workers: Sequence[Worker]) -> list[int]:
    """Wait until all are done or one failed; the exit codes of those that are done by then, 0 for the others."""
    while True:
        codes = [worker.poll() for worker in workers]
        if None not in codes or any(codes):
            return [code or 0 for code in codes]
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _end(workers: Sequence[Worker]) -> None:
    """End those that are left."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        try:
            worker.wait(max(deadline - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            worker.kill()
            worker.wait()


def _status(codes: Sequence[int], passed: Sequence[int]) -> int:
    """Exit status all workers agreed on, or of the one whose failure ended the others.

    :param codes: exit codes by rank; `passed`: signals that were passed on to them.
    """
    for rank, code in enumerate(codes):
        if code < 0 and -code not in REQUESTS:
            log.error("process %d was killed by signal %d (out of memory?); the others were ended", rank, -code)
            return 128 - code
    ended = [code if code > 0 else 128 - code for code in codes if code]
    if passed:
        # What a signal finds before Python has started ends with 1.
        ended = [128 + passed[0] if code == 1 else code for code in ended]
    # With SIGTERM those that are left were ended.
    return next((code for code in ended if code != 128 + signal.SIGTERM), 128 + signal.SIGTERM)


@contextmanager
def _passing_signals_on(workers: Sequence[Worker]) -> Iterator[list[int]]:
    """Pass requests to end on to the workers; a second Ctrl-C kills them. Yields the numbers as they come."""
    passed: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed.append(number)
        interrupts = passed.count(signal.SIGINT)
        for worker in workers:
            worker.send_signal(signal.SIGKILL if interrupts > 1 else number)
        if interrupts > 1:
            raise KeyboardInterrupt
        if not workers:
            sys.exit(128 + number)

    before = {number: signal.getsignal(number) for number in REQUESTS}
    for number in REQUESTS:
        signal.signal(number, pass_on)
    try:
        yield passed
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

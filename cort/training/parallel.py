"""One process per GPU: a stage works here, or workers run it again that this starts, passes signals on to, and ends.

torchrun does the same, but its store listens on all network devices, and it kills workers that need more than 30 s to
write a checkpoint. A worker runs this module, ``python -m cort.training.parallel STAGE OPTIONS``, and imports nothing
from torch before it has tied its life to that of its launcher.
"""

from __future__ import annotations

import ctypes
import importlib
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, NoReturn

from cort.system.devices import lease
from cort.system.errors import InputError, input_error
from cort.system.interruption import REQUESTS, Interrupted, Requests
from cort.system.options import to_words
from cort.training.settings import TrainingOptions

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

Worker = subprocess.Popen[bytes]

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
#: set for workers: process id of the launcher, and the file its log goes to
LAUNCHER, LOG = "CORT_LAUNCHER", "CORT_LOG"
SECONDS_BETWEEN_LOOKS = 0.1
# Workers that another one's failure ended get so many seconds to leave.
SECONDS_TO_END = 30
# When one worker fails the others are ended: one that still runs this many seconds after its failure was the first.
GRACE = 4.0


def run(module: str, options: TrainingOptions, task: str) -> None:
    """Train here, or have several processes run the stage `module` with the same options.

    :param task: the module whose `make_task` makes what is trained; imported by those who train.
    """

    def work() -> None:
        from cort.training.run import train

        train(module, options, importlib.import_module(task).make_task)

    if "LOCAL_RANK" in os.environ:  # one of several, also if other software started it
        _work_together(work)
        return
    with lease(options.processes):
        processes = usable_processes(options.processes)
        if processes == 1:
            work()
        else:
            _launch(module, options, processes)


# The launcher


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


def _launch(module: str, options: TrainingOptions, processes: int) -> None:
    """Have `processes` workers run the stage `module`, and wait.

    :raises Interrupted: they ended otherwise than well; the status is theirs.
    """
    threads = max(options.threads // processes, 1)
    log.info("%d processes of %d threads", processes, threads)
    command = [sys.executable, "-m", "cort.training.parallel", module, *to_words(replace(options, threads=threads))]
    store = open_store()
    handlers = logging.getLogger().handlers
    environment = {
        # Workers of one machine need no other network, and nobody needs hints for developers, which torch writes from
        # beyond the reach of Python's filters. What the environment says goes first.
        "GLOO_SOCKET_IFNAME": "lo",
        "NCCL_SOCKET_IFNAME": "lo",
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **os.environ,
        LAUNCHER: str(os.getpid()),
        LOG: next((handler.baseFilename for handler in handlers if isinstance(handler, logging.FileHandler)), ""),
        "OMP_NUM_THREADS": str(threads),
        "MASTER_ADDR": LOOPBACK,
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "WORLD_SIZE": str(processes),
        "LOCAL_WORLD_SIZE": str(processes),
    }
    workers: list[Worker] = []
    with Requests() as requests:
        try:
            for rank in map(str, range(processes)):
                # In a session of its own, so that a Ctrl-C comes from the launcher alone.
                ranked = {**environment, "RANK": rank, "LOCAL_RANK": rank}
                workers.append(subprocess.Popen(command, env=ranked, start_new_session=True))
            codes, passed = _wait(workers, requests)
        except KeyboardInterrupt:  # the second one
            for worker in workers:
                worker.kill()
            raise
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


def _wait(workers: Sequence[Worker], requests: Requests) -> tuple[list[int], int | None]:
    """Pass requests to end on until all are done or one failed; exit codes, 0 of who goes on, and the last request."""
    passed: int | None = None
    while True:
        codes = [worker.poll() for worker in workers]
        if None not in codes or any(codes):
            return [code or 0 for code in codes], passed
        if requests.received:
            passed, requests.received = requests.received, None
            for worker in workers:
                worker.send_signal(passed)
        time.sleep(SECONDS_BETWEEN_LOOKS)


def _end(workers: Sequence[Worker]) -> None:
    """End those that are left."""
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(max(deadline - time.monotonic(), 0))
        worker.kill()
        worker.wait()


def _status(codes: Sequence[int], passed: int | None) -> int:
    """Exit status all workers agreed on, or of the one whose failure ended the others, from exit codes by rank."""
    for rank, code in enumerate(codes):
        if code < 0 and -code not in REQUESTS:
            log.error("process %d was killed by signal %d (out of memory?); the others were ended", rank, -code)
            return 128 - code
    ended = [code if code > 0 else 128 - code for code in codes if code]
    if passed:
        # What a signal finds before Python has started ends with 1.
        ended = [128 + passed if code == 1 else code for code in ended]
    # With SIGTERM those that are left were ended.
    return next((code for code in ended if code != 128 + signal.SIGTERM), 128 + signal.SIGTERM)


# A worker


def main(argv: Sequence[str]) -> int:
    """Run a stage as a worker, which speaks less than its launcher."""
    die_with(int(os.environ[LAUNCHER]))
    logging.disable(_silent())
    return int(importlib.import_module(argv[0]).main(argv[1:]))


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, however it ends."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # it ended before the kernel was told
        sys.exit(128 + signal.SIGKILL)


def _work_together(work: Callable[[], None]) -> None:
    """Work as one of several; only the first says what all know."""
    if LAUNCHER in os.environ and _is_first():
        if path := os.environ[LOG]:
            handler = logging.FileHandler(path, mode="a", encoding="utf-8")
            handler.setFormatter(logging.getLogger().handlers[0].formatter)
            logging.getLogger().addHandler(handler)
        logging.disable(logging.NOTSET)
    try:
        work()
    except Interrupted:
        raise
    except KeyboardInterrupt:
        if _is_first():
            raise
        sys.exit(128 + signal.SIGINT)
    except Exception as error:
        # What all run into, the first one says; what follows from the end of another, nobody need say.
        if not (_is_first() and isinstance(error, InputError | OSError)):
            time.sleep(GRACE)
        raise
    finally:
        if LAUNCHER in os.environ:
            logging.disable(_silent())


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _silent() -> int:
    """Highest level of messages that are not of this process to say: the launcher tells start and end."""
    return logging.INFO if _is_first() else logging.WARNING


def _end_now(status: int) -> NoReturn:
    """End without Python's finalization, which Gloo's threads do not survive if they let go of a tensor meanwhile."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        _end_now(main(sys.argv[1:]))
    except SystemExit as end:
        _end_now(end.code if isinstance(end.code, int) else 1)

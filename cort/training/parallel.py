"""One process per GPU: a stage starts workers that run it again, passes signals on to them, and ends them.

Torchrun's elastic agent (torch 2.13) cannot replace this launcher. After a signal, it does not report how the workers
ended: with a checkpoint (status 75 or 130), without one (1), or while still loading (128 + signal). If it is killed,
its workers survive, and its store listens on all network interfaces.

A worker imports torch only after it has told the kernel to kill it when its launcher ends.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from cort.runtime.command_line import to_words
from cort.runtime.devices import lease
from cort.runtime.errors import InputError
from cort.runtime.interruption import ATTACHED, REQUESTS, Interrupted, Requests
from cort.training.settings import TrainingOptions

if TYPE_CHECKING:
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

log = logging.getLogger(__name__)

Worker = subprocess.Popen[bytes]

LOOPBACK = "127.0.0.1"
PR_SET_PDEATHSIG = 1
#: environment of workers: process id of the launcher, and its log file
LAUNCHER, LOG = "CORT_LAUNCHER", "CORT_LOG"
SECONDS_BETWEEN_POLLS = 0.1
#: time that the remaining workers get to exit after another one failed
SECONDS_TO_END = 30
#: The first worker to fail ends all others: one that still runs this many seconds after its failure was the first.
GRACE = 4.0


def run(options: TrainingOptions, work: Callable[[], None]) -> None:
    """Do `work` in this process, or start workers that run this stage with the same options."""
    if "LOCAL_RANK" in os.environ:  # this process is a worker, perhaps of another launcher
        _work_together(work)
        return
    with lease(options.processes):
        processes = usable_processes(options.processes)
        if processes == 1:
            work()
        else:
            _launch(options, processes)


def stage_name(options: TrainingOptions) -> str:
    """Name the stage, as in ``python -m NAME``, whose options these are."""
    stage = sys.modules[type(options).__module__]
    return stage.__spec__.name if stage.__spec__ else stage.__name__


# The launcher


def usable_processes(wanted: int) -> int:
    """Limit the number of processes to the number of GPUs, unless the environment chooses the CPU."""
    if wanted == 1 or os.environ.get("ACCELERATE_USE_CPU", "").lower() in {"1", "true", "yes", "on"}:
        return wanted
    import torch

    gpus = torch.cuda.device_count()
    if gpus < wanted:
        log.info("%d processes requested, %d GPUs available", wanted, gpus)
    return max(min(wanted, gpus), 1)


def _launch(options: TrainingOptions, processes: int) -> None:
    """Start workers and wait for them.

    :raises Interrupted: at least one failed; the status is theirs.
    """
    threads = max(options.threads // processes, 1)
    log.info("%d processes of %d threads", processes, threads)
    command = [sys.executable, "-m", stage_name(options), *to_words(options.model_copy(update={"threads": threads}))]
    store = open_store()
    handlers = logging.getLogger().handlers
    environment = {
        # The workers share a machine and need no other network. Torch logs hints for developers, which Python's warning
        # filters cannot suppress. The user's environment takes precedence.
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
                # In a session of its own, it gets Ctrl-C only from the launcher, which speaks for it.
                ranked = {**environment, ATTACHED: "1", "RANK": rank, "LOCAL_RANK": rank}
                workers.append(subprocess.Popen(command, env=ranked, start_new_session=True))
            codes, passed = _wait(workers, requests)
        except KeyboardInterrupt:  # the second Ctrl-C
            for worker in workers:
                worker.kill()
            raise
        finally:
            _end(workers)
    if any(codes):
        raise Interrupted("", _status(codes, passed))


def open_store() -> TCPStore:
    """Open the store in which the workers meet, on the loopback interface only."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listener = socket.create_server((LOOPBACK, 0))
    port = listener.getsockname()[1]
    return TCPStore(LOOPBACK, port, is_master=True, wait_for_workers=False, master_listen_fd=listener.detach())


def _wait(workers: Sequence[Worker], requests: Requests) -> tuple[list[int], int | None]:
    """Pass signals on until all workers have ended or one has failed.

    :returns: exit codes, 0 for workers that are still running, and the last signal passed on.
    """
    passed: int | None = None
    while True:
        codes = [worker.poll() for worker in workers]
        if None not in codes or any(codes):
            return [code or 0 for code in codes], passed
        if requests.received:
            passed, requests.received = requests.received, None
            for worker in workers:
                worker.send_signal(passed)
        time.sleep(SECONDS_BETWEEN_POLLS)


def _end(workers: Sequence[Worker]) -> None:
    for worker in workers:
        worker.terminate()
    deadline = time.monotonic() + SECONDS_TO_END
    for worker in workers:
        with suppress(subprocess.TimeoutExpired):
            worker.wait(max(deadline - time.monotonic(), 0))
        worker.kill()
        worker.wait()


def _status(codes: Sequence[int], passed: int | None) -> int:
    """Derive the exit status from the workers' exit codes: that of the first to fail, or the one they share."""
    for rank, code in enumerate(codes):
        if code < 0 and -code not in REQUESTS:
            log.error("process %d was killed by signal %d (out of memory?); the others were ended", rank, -code)
            return 128 - code
    failed = [code if code > 0 else 128 - code for code in codes if code]
    if passed:
        # A signal that arrives before Python has started ends a worker with 1.
        failed = [128 + passed if code == 1 else code for code in failed]
    # Workers that ended with SIGTERM were ended by this launcher.
    return next((code for code in failed if code != 128 + signal.SIGTERM), 128 + signal.SIGTERM)


# A worker


def exit_with(main: Callable[[], int]) -> NoReturn:
    """Run the stage's `main` and exit with its status."""
    if not {"LOCAL_RANK", LAUNCHER} & os.environ.keys():
        sys.exit(main())
    if LAUNCHER in os.environ:
        die_with(int(os.environ[LAUNCHER]))
        logging.disable(_muted())
    try:
        status: object = main()
    except SystemExit as end:
        status = end.code
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    # Skip Python's finalization: Gloo's threads crash if they release a tensor during it.
    os._exit(status if isinstance(status, int) else 1)


def die_with(parent: int) -> None:
    """Have the kernel kill this process when `parent` ends, in whatever way."""
    library = ctypes.CDLL(None, use_errno=True)
    if library.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_PDEATHSIG) failed")
    if os.getppid() != parent:  # the parent ended before the call
        os._exit(128 + signal.SIGKILL)


def _work_together(work: Callable[[], None]) -> None:
    """Work as one of several processes, of which only the first logs what happens in all of them."""
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
        # The first process reports errors in the input. Any other error may just be a consequence of another process's
        # end; the launcher then ends this process within the grace period.
        if not (_is_first() and isinstance(error, InputError | OSError)):
            time.sleep(GRACE)
        raise
    finally:
        if LAUNCHER in os.environ:
            logging.disable(_muted())


def _is_first() -> bool:
    return os.environ.get("RANK", "0") == "0"


def _muted() -> int:
    """Highest level of log messages that a worker drops: the launcher logs start and end."""
    return logging.INFO if _is_first() else logging.WARNING

"""Starting the workers of a stage with torch's elastic agent, passing signals on to them, and ending as they ended."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from types import FrameType

import psutil
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.distributed.elastic.agent.server.api import RunResult, WorkerSpec
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.rendezvous import RendezvousHandler, RendezvousInfo, RendezvousStoreInfo

from cort.system.environment import changed_environment
from cort.system.interruption import REQUESTS, Interrupted
from cort.training.parallel.distributed import LAUNCHER, LOG

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
# What the environment says goes first. Workers of one machine need no other network, and nobody needs hints for
# developers, which torch writes from beyond the reach of Python's filters.
DEFAULTS = {"GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
STORE_TIMEOUT = timedelta(minutes=5)
SECONDS_BETWEEN_LOOKS = 0.1


def launch(module: str, args: argparse.Namespace, processes: int) -> None:
    """Have `processes` workers run the stage `module`, and wait.

    :raises Interrupted: they ended otherwise than well; the status is theirs.
    """
    threads = max(args.threads // processes, 1)
    log.info("%d processes of %d threads", processes, threads)
    command = ["-m", "cort.training.parallel.distributed", module, *options_of(args, threads)]
    spec = WorkerSpec(
        role="worker",
        local_world_size=processes,
        rdzv_handler=LoopbackRendezvous(),
        entrypoint=sys.executable,
        # The agent fills in "${local_rank}" in arguments.
        args=tuple(part.replace("$", "$$") for part in command),
        max_restarts=0,
        monitor_interval=SECONDS_BETWEEN_LOOKS,
    )
    changes = {name: os.environ.get(name, value) for name, value in DEFAULTS.items()}
    changes |= {LAUNCHER: str(os.getpid()), LOG: args.log or "", "OMP_NUM_THREADS": str(threads)}
    # The agent's own handlers would kill a worker that is not done within 30 s.
    changes["TORCHELASTIC_SIGNALS_TO_HANDLE"] = ""
    with changed_environment(changes), _passing_signals_on() as passed, _silence():
        result = LocalElasticAgent(spec, logs_specs=DefaultLogsSpecs(log_dir=os.devnull)).run()
    if result.is_failed():
        raise Interrupted("", _status(result, passed))


def options_of(args: argparse.Namespace, threads: int) -> list[str]:
    """Write parsed arguments as options again, for a worker of so many threads; the log stays the launcher's."""
    named = {**vars(args), "threads": threads, "log": None}
    return [f"--{name.replace('_', '-')}={value}" for name, value in named.items() if value is not None]


class LoopbackRendezvous(RendezvousHandler):
    """Where agent and workers meet: a store on the loopback device.

    torch's own rendezvous listen on all devices, and its default one unpickles what it receives.
    """

    def __init__(self) -> None:
        self._run_id = uuid.uuid4().hex
        listener = socket.create_server((LOOPBACK, 0))
        self._port: int = listener.getsockname()[1]
        self._store = TCPStore(
            LOOPBACK,
            self._port,
            world_size=1,
            is_master=True,
            timeout=STORE_TIMEOUT,
            wait_for_workers=False,
            master_listen_fd=listener.detach(),
        )

    @property
    def use_agent_store(self) -> bool:
        """The workers connect to the same store."""
        return True

    def next_rendezvous(self) -> RendezvousInfo:
        """Nobody else is waited for."""
        return RendezvousInfo(PrefixStore(self._run_id, self._store), 0, 1, RendezvousStoreInfo(LOOPBACK, self._port))

    def get_backend(self) -> str:
        """Name of this kind."""
        return "loopback"

    def get_run_id(self) -> str:
        """Name of this one."""
        return self._run_id

    def num_nodes_waiting(self) -> int:
        """No other machine can join."""
        return 0

    def is_closed(self) -> bool:
        """Say that it ends with the process."""
        return False

    def set_closed(self) -> None:
        """Nobody can join anyway."""

    def shutdown(self) -> bool:
        """Nothing is left to end."""
        return True


def _status(result: RunResult, passed: Sequence[int]) -> int:
    """Exit status all workers agreed on, or of the one whose failure ended the others.

    :param passed: signals that were passed on to them.
    """
    codes = {rank: failure.exitcode for rank, failure in result.failures.items()}
    for rank, code in codes.items():
        if code < 0 and -code not in REQUESTS:
            log.error("process %d was killed by signal %d (out of memory?); the others were ended", rank, -code)
            return 128 - code
    ended = [code if code > 0 else 128 - code for code in codes.values()]
    if passed:
        # What a signal finds before Python has started ends with 1.
        ended = [128 + passed[0] if code == 1 else code for code in ended]
    # With SIGTERM the agent ends those that are left.
    return next((code for code in ended if code != 128 + signal.SIGTERM), 128 + signal.SIGTERM)


@contextmanager
def _silence() -> Iterator[None]:
    """Keep out of the log what the agent says, much for every worker that failed."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


@contextmanager
def _passing_signals_on() -> Iterator[list[int]]:
    """Pass requests to end on to the workers; a second Ctrl-C kills them. Yields the numbers as they come."""
    passed: list[int] = []

    def pass_on(number: int, frame: FrameType | None) -> None:
        passed.append(number)
        interrupts = passed.count(signal.SIGINT)
        workers = psutil.Process().children()
        for worker in workers:
            with suppress(psutil.Error):  # it just ended
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

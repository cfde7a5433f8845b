"""GPUs of this machine, and leases on them, so that no two stages use one device at the same time.

A device is identified by its UUID if `nvidia-smi` lists it, so that processes that see different parts of a machine
agree on it; numbers in CUDA_VISIBLE_DEVICES are those of nvidia-smi. A lease ends with its holder (see `locks`). The
locks are in the folder that CORT_LEASES names, or in the user's own folder in the temporary folder.
"""

import itertools
import logging
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cort.runtime import locks
from cort.runtime.errors import input_error

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
# What CUDA takes there: a number, or the identity of a GPU or of an instance of one.
ENTRY = re.compile(r"[0-9]+|(GPU|MIG)-[\w/-]+")
LISTED = re.compile(r"^(?:GPU \d+: .*\(UUID: (GPU-[^)\s]+)\)|\s+MIG .*\(UUID: (MIG-[^)\s]+)\))", re.MULTILINE)
FOLDER = "CORT_LEASES"
# Seconds. A faulty driver can block nvidia-smi forever.
PATIENCE = 10


def visible_devices() -> list[str]:
    """List the devices that this process may use: those in CUDA_VISIBLE_DEVICES if it is set, otherwise all."""
    setting = os.environ.get(VISIBLE)
    if setting is None:
        return [device for devices in _list_gpus() or [] for device in devices]
    entries = itertools.takewhile(ENTRY.fullmatch, map(str.strip, setting.split(",")))
    return select(list(entries))


def select(entries: Sequence[str]) -> list[str]:
    """Resolve entries of CUDA_VISIBLE_DEVICES, of which CUDA ignores those from the first unknown number on."""
    gpus = _list_gpus() if entries else None
    if gpus is None:
        return list(entries)
    numbers = {str(number): devices for number, devices in enumerate(gpus)}
    known = itertools.takewhile(lambda entry: not entry.isdecimal() or entry in numbers, entries)
    return list(dict.fromkeys(device for entry in known for device in numbers.get(entry, [entry])))


@contextmanager
def lease(count: int = 1) -> Iterator[list[str]]:
    """Wait for a lease on `count` devices, or on all if there are fewer; yield their identities (none without GPUs).

    During the lease, CUDA sees only these devices, in this process unless it has used CUDA before, and in processes
    that it starts, which must not take leases of their own.
    """
    devices = visible_devices()
    # CUDA uses one MIG instance per process.
    count = min(count, 1 if any(identity.startswith("MIG-") for identity in devices) else len(devices))
    if count < 1:
        yield []
        return
    with locks.hold(_lock_folder(), devices, count) as held:
        for identity in held:
            log.info("leased device %s", identity)
        with _visible(held):
            yield held


@contextmanager
def _visible(devices: Sequence[str]) -> Iterator[None]:
    """Set CUDA_VISIBLE_DEVICES, also for processes started meanwhile, and restore it afterwards."""
    before = os.environ.get(VISIBLE)
    os.environ[VISIBLE] = ",".join(devices)
    try:
        yield
    finally:
        del os.environ[VISIBLE]
        os.environ |= {} if before is None else {VISIBLE: before}


def parse_listing(text: str) -> list[list[str]]:
    """Parse the output of ``nvidia-smi -L``: the identity of each GPU, or of its MIG instances if it has any."""
    gpus: list[list[str]] = []
    for whole, instance in LISTED.findall(text):
        if whole:
            gpus.append([whole])
        elif gpus:
            gpus[-1] = [name for name in gpus[-1] if name.startswith("MIG-")] + [instance]
    return gpus


def _list_gpus() -> list[list[str]] | None:
    """List GPUs with nvidia-smi; None if it is missing, fails or does not answer."""
    try:
        nothing, pipe = subprocess.DEVNULL, subprocess.PIPE
        command = ["nvidia-smi", "-L"]
        process = subprocess.Popen(command, stdin=nothing, stdout=pipe, stderr=nothing, text=True, errors="replace")
    except OSError:
        return None
    try:
        listing, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        log.warning("nvidia-smi does not answer within %g s: its GPUs are not used", PATIENCE)
        return None
    finally:
        # Do not wait for it: a process that hangs in the driver cannot be killed.
        process.kill()
    return parse_listing(listing) if process.returncode == 0 else None


def _lock_folder() -> Path:
    """Return the folder of the locks, which must be the user's own, because whoever writes to it decides who waits."""
    folder = Path(os.environ.get(FOLDER) or Path(tempfile.gettempdir()) / f"cort-devices-{os.getuid()}")
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700, parents=True)
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        found = "a symbolic link"
    elif not stat.S_ISDIR(status.st_mode):
        found = "a file"
    elif status.st_uid != os.getuid():
        found = f"a folder of user {status.st_uid}"
    elif status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        found = "a folder that others can write to"
    else:
        return folder
    raise input_error(folder, found, "a folder of your own", f"remove it, or set {FOLDER} to another folder")

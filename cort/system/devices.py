"""GPUs of this machine, and leases on them, so that no two stages use one device at the same time.

A device is identified by its UUID if `nvidia-smi` lists it, so that processes that see different parts of a machine
agree on it; indices are those of nvidia-smi. A lease ends with its holder (see `locks`). The locks are in the folder
that CORT_LEASES names, or in the user's own folder in the temporary folder.
"""

import logging
import os
import re
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from cort.system import locks
from cort.system.errors import input_error

log = logging.getLogger(__name__)

VISIBLE = "CUDA_VISIBLE_DEVICES"
ORDER = "CUDA_DEVICE_ORDER"
FOLDER = "CORT_LEASES"
# Seconds. A faulty driver can block nvidia-smi forever.
PATIENCE = 10


class Gpu(NamedTuple):
    """A GPU as listed by `nvidia-smi`; if it has MIG `instances`, they are used instead."""

    number: int
    uuid: str
    instances: tuple[str, ...]


def visible_devices() -> list[str]:
    """List the devices that this process may use: those in CUDA_VISIBLE_DEVICES if it is set, otherwise all."""
    return list(_discover()[0])


@contextmanager
def lease(count: int = 1) -> Iterator[list[str]]:
    """Wait for a lease on `count` devices, or on all if there are fewer; yield their identities (none without GPUs).

    During the lease, CUDA sees only these devices, in this process unless it has used CUDA before, and in processes
    that it starts, which must not take leases of their own.
    """
    devices, by_index = _discover()
    # CUDA uses one MIG instance per process.
    count = min(count, 1 if any(identity.startswith("MIG-") for identity in devices) else len(devices))
    if count < 1:
        yield []
        return
    with locks.hold(_lock_folder(), list(devices), count) as held:
        for identity in held:
            log.info("leased device %s", identity)
        settings = [setting for identity, setting in devices.items() if identity in held]
        changes = {VISIBLE: ",".join(settings)}
        if by_index and any(setting.isdecimal() for setting in settings):
            # CUDA orders devices by speed, nvidia-smi by bus.
            changes[ORDER] = "PCI_BUS_ID"
        with _changed_environment(changes):
            yield held


@contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, also for processes started meanwhile, and restore them afterwards."""
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


def parse_listing(text: str) -> list[Gpu]:
    """Parse the output of ``nvidia-smi -L``."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): .*\(UUID: (GPU-[^)\s]+)\)", line):
            gpus.append(Gpu(int(match[1]), match[2], ()))
        elif gpus and (match := re.match(r"\s+MIG .*\(UUID: (MIG-[^)\s]+)\)", line)):
            gpus[-1] = gpus[-1]._replace(instances=(*gpus[-1].instances, match[1]))
    return gpus


def select(setting: str, gpus: Sequence[Gpu] | None) -> dict[str, str]:
    """Resolve a value of CUDA_VISIBLE_DEVICES like CUDA: up to the first invalid entry; nothing if an entry repeats.

    Return identity -> entry. If the `gpus` of the machine are unknown, entries serve as identities.
    """
    entries: dict[str, str] = {}
    for entry in map(str.strip, setting.split(",")):
        identity = _identify(entry, gpus)
        if identity is None:
            break
        if identity in entries:
            return {}
        entries[identity] = entry
    return entries


def _identify(entry: str, gpus: Sequence[Gpu] | None) -> str | None:
    if gpus is None:
        return entry if re.fullmatch(r"[0-9]+|(GPU|MIG)-[\w/-]+", entry) else None
    # CUDA takes the first instance of a GPU with instances.
    names = {gpu.uuid: (*gpu.instances, gpu.uuid)[0] for gpu in gpus}
    names |= {part: part for gpu in gpus for part in gpu.instances}
    if re.fullmatch("[0-9]+", entry):
        matches = [gpu.uuid for gpu in gpus if gpu.number == int(entry)]
    elif entry in names:
        matches = [entry]
    else:
        matches = [name for name in names if name.startswith(entry) and entry.startswith(("GPU-", "MIG-"))]
    return names[matches[0]] if len(matches) == 1 else None


def _discover() -> tuple[dict[str, str], bool]:
    """Return the devices that this process may use, as `select` does, and whether indices are those of nvidia-smi."""
    setting = os.environ.get(VISIBLE)
    if setting is not None and not select(setting, None):
        return {}, False
    gpus = _list_gpus()
    if setting is not None:
        return select(setting, gpus), gpus is not None
    return {name: name for gpu in gpus or () for name in gpu.instances or (gpu.uuid,)}, False


def _list_gpus() -> list[Gpu] | None:
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

"""GPUs of this machine, and leases on them: a stage works on a device that no other stage works on.

A device is identified by its UUID where `nvidia-smi` tells it, so that processes which see different parts of a machine
agree on it; indices are those of nvidia-smi. A lease is a lock (see `locks`), which ends with its holder. Locks are in
a folder of the user's own under the temporary one, or in that which CORT_LEASES names.
"""

from __future__ import annotations

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
# Seconds. A driver in trouble can block nvidia-smi for good.
PATIENCE = 10


class Gpu(NamedTuple):
    """A GPU as `nvidia-smi` lists it; with `instances` (MIG), these are used in its stead."""

    number: int
    uuid: str
    instances: tuple[str, ...]


def visible_devices() -> list[str]:
    """Identities of the devices this process may use: those of CUDA_VISIBLE_DEVICES if it is set, else all."""
    return list(_discover()[0])


@contextmanager
def lease(count: int = 1) -> Iterator[list[str]]:
    """Hold `count` devices, or all if there are fewer; yield their identities, none on a machine without any.

    Waits until they are free. Meanwhile CUDA sees no others, in this process if it has not used CUDA before, and in
    those it calls, which must not ask for a lease of their own.
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
            # CUDA's own order is by speed, nvidia-smi's is this one.
            changes[ORDER] = "PCI_BUS_ID"
        with _changed_environment(changes):
            yield held


@contextmanager
def _changed_environment(changes: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables, also for processes started meanwhile, and put them back as they were."""
    before = {name: os.environ[name] for name in changes if name in os.environ}
    os.environ.update(changes)
    try:
        yield
    finally:
        for name in changes:
            os.environ.pop(name, None)
        os.environ.update(before)


def parse_listing(text: str) -> list[Gpu]:
    """Read what ``nvidia-smi -L`` prints."""
    gpus: list[Gpu] = []
    for line in text.splitlines():
        if match := re.match(r"GPU (\d+): .*\(UUID: (GPU-[^)\s]+)\)", line):
            gpus.append(Gpu(int(match[1]), match[2], ()))
        elif gpus and (match := re.match(r"\s+MIG .*\(UUID: (MIG-[^)\s]+)\)", line)):
            gpus[-1] = gpus[-1]._replace(instances=(*gpus[-1].instances, match[1]))
    return gpus


def select(setting: str, gpus: Sequence[Gpu] | None) -> dict[str, str]:
    """Resolve a value of CUDA_VISIBLE_DEVICES as CUDA does: up to its first invalid entry, nothing if one repeats.

    What CUDA_VISIBLE_DEVICES calls a device, by its identity. Where the `gpus` of the machine are unknown, entries are
    taken as they are.
    """
    found: dict[str, str] = {}
    for entry in map(str.strip, setting.split(",")):
        identity = _identify(entry, gpus)
        if identity is None:
            break
        if identity in found:
            return {}
        found[identity] = entry
    return found


def _identify(entry: str, gpus: Sequence[Gpu] | None) -> str | None:
    if gpus is None:
        return entry if re.fullmatch(r"[0-9]+|(GPU|MIG)-[\w/-]+", entry) else None
    # Of a GPU in parts, CUDA takes the first one.
    names = {gpu.uuid: (*gpu.instances, gpu.uuid)[0] for gpu in gpus}
    names |= {part: part for gpu in gpus for part in gpu.instances}
    if re.fullmatch("[0-9]+", entry):
        meant = [gpu.uuid for gpu in gpus if gpu.number == int(entry)]
    elif entry in names:
        meant = [entry]
    else:
        meant = [name for name in names if name.startswith(entry) and entry.startswith(("GPU-", "MIG-"))]
    return names[meant[0]] if len(meant) == 1 else None


def _discover() -> tuple[dict[str, str], bool]:
    """Devices this process may use, as of `select`, and whether an index among them is known to be nvidia-smi's."""
    setting = os.environ.get(VISIBLE)
    if setting is not None and not select(setting, None):
        return {}, False
    gpus = _list_gpus()
    if setting is not None:
        return select(setting, gpus), gpus is not None
    return {name: name for gpu in gpus or () for name in gpu.instances or (gpu.uuid,)}, False


def _list_gpus() -> list[Gpu] | None:
    """Ask nvidia-smi; None if it is not there, fails or does not answer."""
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
        # Not waited for: a process that hangs in the driver does not even die.
        process.kill()
    return parse_listing(listing) if process.returncode == 0 else None


def _lock_folder() -> Path:
    """Folder of the locks: one's own, as who writes into it decides who waits."""
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
        found = "a folder others can write to"
    else:
        return folder
    raise input_error(folder, found, "a folder of your own", f"remove it, or set {FOLDER} to another folder")

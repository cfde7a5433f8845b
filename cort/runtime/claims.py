"""Claims on outputs: of several stages that write one place, only the last that started puts its files there.

A stage may outlive the build that started it: a job on a cluster, of which a killed Snakemake knows nothing any more.
A later build with other settings starts the same stage again, which claims the outputs; the older one then ends with
an error when it has finished. The claim on `scores.json` is a line in `.scores.json.claim` that says who writes it. It
goes at the end of the stage; that of a killed stage stays and harms nobody, and `make clean-cache` removes it.
"""

import json
import os
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from cort.runtime.errors import input_error

#: pattern of the names of claims
CLAIMS = ".*.claim"
#: environment variable: claimed place -> claim, of a stage and the processes that it starts
CLAIMED = "CORT_CLAIMED"
# File names have at most 255 bytes.
NAME_BYTES = 200


@contextmanager
def claiming(outputs: Sequence[str]) -> Iterator[None]:
    """Claim files and folders while entered; a process that a claiming stage has started shares its claims.

    :raises OSError: names the output that cannot be claimed.
    """
    before = os.environ.get(CLAIMED)
    places = [os.path.abspath(output) for output in outputs]
    if not places or set(places) <= _claimed().keys():
        yield
        return
    claim = f"{secrets.token_hex(8)} {_describe_process()}"
    made: list[Path] = []
    os.environ[CLAIMED] = json.dumps(dict.fromkeys(places, claim))
    try:
        for place in places:
            made += _make_folder(Path(place).parent)
            _write(place, claim)
        yield
    finally:
        for place in places:
            if _read(place) == claim:
                with suppress(OSError):
                    _claim_on(place).unlink()
        for folder in reversed(made):
            # Unless it has files by now.
            with suppress(OSError):
                folder.rmdir()
        os.environ.pop(CLAIMED)
        if before is not None:
            os.environ[CLAIMED] = before


def check_claim(target: Path) -> None:
    """Let a file or folder be put in place only by who claimed it last, or the folder it is in; others are free.

    :raises InputError: if another stage has claimed it since.
    """
    path = Path(os.path.abspath(target))
    claimed = _claimed()
    for place in (str(path), *map(str, path.parents)) if claimed else ():
        if place in claimed and (found := _read(place)) != claimed[place]:
            other = f"the claim of {found.partition(' ')[2]}" if found else "no claim any more"
            expected = f"that of this stage, {claimed[place].partition(' ')[2]}"
            fix = "a stage that started later writes it, so nothing was overwritten"
            raise input_error(target, other, expected, fix)


def _claimed() -> Mapping[str, str]:
    return dict(json.loads(os.environ.get(CLAIMED, "{}")))


def _describe_process() -> str:
    job = os.environ.get("SLURM_JOB_ID")
    return f"process {os.getpid()} on {socket.gethostname()}" + (f" (SLURM job {job})" if job else "")


def _claim_on(place: str) -> Path:
    path = Path(place)
    name = path.name if len(os.fsencode(path.name)) <= NAME_BYTES else sha256(os.fsencode(path.name)).hexdigest()
    return path.with_name(f".{name}.claim")


def _make_folder(folder: Path) -> list[Path]:
    """Create a folder; return those that were missing, the highest first."""
    missing = [path for path in (folder, *folder.parents) if not os.path.lexists(path)][::-1]
    folder.mkdir(parents=True, exist_ok=True)
    return missing


def _write(place: str, claim: str) -> None:
    try:
        _claim_on(place).write_text(claim, encoding="utf-8")
    except OSError as error:
        # The name of the claim means nothing to users.
        raise OSError(error.errno, os.strerror(error.errno or 0), place) from error


def _read(place: str) -> str:
    """Return the claim on a place, empty if there is none."""
    with suppress(OSError):
        return _claim_on(place).read_text(encoding="utf-8", errors="replace")
    return ""

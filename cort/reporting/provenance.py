"""Where the results came from, as `cort.provenance` recorded it: the few lines of it that the page shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import read_artifact
from cort.reporting.labels import count

# Libraries whose version can change a number.
LIBRARIES = ("torch", "transformers", "tokenizers", "pyserini", "ngt", "pytrec-eval-terrier", "numpy", "snakemake")


@dataclass(frozen=True)
class Code:
    """The program; None where there was no git repository."""

    version: str
    commit: str | None
    modified: bool | None


@dataclass(frozen=True)
class Software:
    """Versions; None where there was no Java."""

    python: str
    java: str | None
    system: str
    packages: dict[str, str]


@dataclass(frozen=True)
class Hardware:
    """The machine."""

    processor: str
    cores: int
    memory_mb: int
    gpus: list[str]


@dataclass(frozen=True)
class Input:
    """An input file."""

    path: str
    bytes: int
    sha256: str


@dataclass(frozen=True)
class Provenance:
    """What the page needs of the record."""

    written: str
    code: Code
    software: Software
    hardware: Hardware
    inputs: list[Input]


@dataclass(frozen=True)
class Origin:
    """Facts as (name, value), and the input files as (path, size in bytes, SHA-256)."""

    facts: list[tuple[str, str]]
    inputs: list[tuple[str, str, str]]


def read_origin(path: str | Path) -> Origin:
    """Read the record; what could not be found out then is left out."""
    found = read_artifact(path, Provenance)
    code, software, hardware = found.code, found.software, found.hardware
    packages = {name.lower(): version for name, version in software.packages.items()}
    facts = {
        "Program": f"cort {code.version}",
        "Commit": code.commit and code.commit + (" with changes" if code.modified else ""),
        "Written": found.written,
        "Machine": f"{hardware.processor}, {hardware.cores} cores, {hardware.memory_mb / 1024:.0f} GiB of memory",
        "Graphics cards": "; ".join(hardware.gpus),
        "System": software.system,
        "Python": software.python,
        "Java": software.java,
        "Libraries": ", ".join(f"{name} {packages[name]}" for name in LIBRARIES if name in packages),
    }
    inputs = [(one.path, count(one.bytes), one.sha256) for one in found.inputs]
    return Origin([(name, text) for name, text in facts.items() if text], inputs)

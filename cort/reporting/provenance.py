"""Where the results came from, as `cort.provenance` recorded it: the few lines of it that the page shows."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import Node, read_json
from cort.reporting.labels import count

# Libraries whose version can change a number.
LIBRARIES = ("torch", "transformers", "tokenizers", "pyserini", "ngt", "pytrec-eval-terrier", "numpy", "snakemake")


@dataclass(frozen=True)
class Origin:
    """Facts as (name, value), and the input files as (path, size in bytes, SHA-256)."""

    facts: list[tuple[str, str]]
    inputs: list[tuple[str, str, str]]


def read_origin(path: str | Path) -> Origin:
    """Read the record; what could not be found out then is left out."""
    node = read_json(path)
    code, software, hardware = node["code"], node["software"], node["hardware"]
    commit = code.get("commit")
    facts = {
        "Program": f"cort {code['version'].text()}",
        "Commit": commit and commit.text() + (" with changes" if code["modified"].value else ""),
        "Written": node["written"].text(),
        "Machine": _machine(hardware),
        "Graphics cards": "; ".join(one.text() for one in hardware["gpus"].items()),
        "System": software["system"].text(),
        "Python": software["python"].text(),
        "Java": (java := software.get("java")) and java.text(),
        "Libraries": _libraries(software["packages"]),
    }
    inputs = [(one["path"].text(), count(one["bytes"].count()), one["sha256"].text()) for one in node["inputs"].items()]
    return Origin([(name, text) for name, text in facts.items() if text], inputs)


def _machine(hardware: Node) -> str:
    memory = hardware["memory_mb"].count() / 1024
    return f"{hardware['processor'].text()}, {hardware['cores'].count()} cores, {memory:.0f} GiB of memory"


def _libraries(packages: Node) -> str:
    versions = {name.lower(): version.text() for name, version in packages.members()}
    return ", ".join(f"{name} {versions[name]}" for name in LIBRARIES if name in versions)

"""What several test files read and compare in one way."""

import csv
import gzip
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cort.formats.records import Ranking
from cort.formats.runs import write_run
from cort.formats.tables import PASSAGES, read_table, write_table
from cort.runtime.errors import InputError

ROOT = Path(__file__).parents[2]
#: of a hub, as a config names it
COMMIT = "0123456789abcdef0123456789abcdef01234567"
#: sizes of small models with random weights
BERT = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
#: what tokenizers, analysers and file formats stumble over
TEXTS = [
    "lists of files, in a directory",
    "CafÃ© au lait, 3,5 €: naïve Straße?",
    "emoji 🙂 and 𐍈, then words again",
    "ねこ が すき",
    "(((((",
]


def md5_of(content):
    return hashlib.md5(content).hexdigest()  # noqa: S324


def wait_until(condition, what="something", seconds=180, pause=0.02):
    """Wait for something true, and return it."""
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {seconds} s for {what}"
        time.sleep(pause)
    return found


def logged(caplog, level="INFO"):
    """Messages of one level since the last call."""
    messages = [record.getMessage() for record in caplog.records if record.levelname == level]
    caplog.clear()
    return messages


def write_file(path, data):
    """Write text or bytes, compressed if the name says so; return the path."""
    data = data.encode() if isinstance(data, str) else data
    path.write_bytes(gzip.compress(data, mtime=0) if path.name.endswith(".gz") else data)
    return path


def json_lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def write_files(folder, files):
    """Write name -> text as it is, or rows as the suffix says: Parquet or JSON lines."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if name.endswith(".parquet"):
            pq.write_table(pa.Table.from_pylist(content), path)
        else:
            write_file(path, content if isinstance(content, str) else json_lines(content))


def refusal(read, path):
    """Return the one line with which a file is refused, without its name."""
    with pytest.raises(InputError) as error:
        list(read(path))
    message = str(error.value)
    assert "\n" not in message
    assert message.startswith(f"{path}: ")
    return message.removeprefix(f"{path}: ")


def read_curve(path):
    with open(path, newline="", encoding="utf-8") as handle:
        return [{name: float(cell) if cell else None for name, cell in row.items()} for row in csv.DictReader(handle)]


def table_of(schema, rows):
    return pa.Table.from_pylist([dict(zip(schema.names, row, strict=True)) for row in rows], schema)


def texts_by_id(path, schema=PASSAGES):
    """Texts by id of a table of passages, or of queries."""
    return dict(zip(*read_table(path, schema).to_pydict().values(), strict=True))


def write_rows(path, schema, rows):
    """Write a table; its path as text."""
    write_table(path, table_of(schema, rows))
    return str(path)


def write_ranked(path, rankings):
    """Write a run of query -> documents, best first; its path as text."""
    write_run(path, [Ranking(q, list(docs), -np.arange(len(docs), dtype=float)) for q, docs in rankings.items()], "t")
    return str(path)


def contents(folder):
    """Bytes of all files."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


def command_line(named, changes=None):
    """Options of a stage by name, of one value or a list; `changes` are keyword arguments that replace or add some.

    True stands for an option without a value, None for none.
    """
    named = {name.replace("_", "-"): value for name, value in (named | (changes or {})).items() if value is not None}
    listed = {name: value if isinstance(value, list) else [value] for name, value in named.items()}
    return [
        str(part) for name, values in listed.items() for part in (f"--{name}", *(v for v in values if v is not True))
    ]


def gpu_uuid(number):
    return f"GPU-{number:08d}-aaaa-bbbb-cccc-0123456789ab"


def fake_gpus(folder, number):
    """Make a folder in which `nvidia-smi` lists so many GPUs; a PATH that finds it first."""
    listing = "".join(f"GPU {gpu}: NVIDIA Imagined (UUID: {gpu_uuid(gpu)})\n" for gpu in range(number))
    return fake_nvidia_smi(folder, f"cat <<'END'\n{listing}END")


def fake_nvidia_smi(folder, script):
    """Make a folder with a shell script as `nvidia-smi`; a PATH that finds it first."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    program.chmod(0o755)
    return os.pathsep.join([str(folder), os.environ["PATH"]])


def die_while_writing(path):
    """Leave what a process leaves that is killed while it writes a file."""
    code = "import os, sys; from cort.runtime.files import atomic_file; writer = atomic_file(sys.argv[1])"
    code += "; writer.__enter__(); os._exit(1)"
    subprocess.run([sys.executable, "-c", code, path], cwd=ROOT, check=False)

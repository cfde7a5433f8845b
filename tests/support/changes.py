"""Copies of a built tree in which something was changed, and Snakemake's plan for them.

Nothing of the project is imported here: the process that plans imports all of it from the copy.
"""

import contextlib
import io
import multiprocessing
import os
import re
import shutil
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import yaml

# What a plan would spend most of its time on, imported once for all.
IMPORTED = ["snakemake.cli", "snakemake.report.html_reporter", "smart_open", "jsonschema"]
LOG = re.compile(r"--log logs/([^/\s]+)/(\S+)\.log$", re.MULTILINE)


def planner():
    """Pool of one process, a new one for each plan."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1)


def plan(folder, arguments):
    """Status and output of `snakemake --dry-run` in a folder, in a process that has just been started."""
    from snakemake.cli import main

    os.chdir(folder)
    sys.path.insert(0, str(folder))
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            status = main(["--dry-run", "--printshellcmds", *arguments])
        except SystemExit as end:
            status = end.code
    return status, said.getvalue()


def planned_jobs(output):
    """Names of the jobs in a plan, as their log files are called: "split test" of logs/<dataset>/split/test.log."""
    return {path.replace("/", " ", 1) for _, path in LOG.findall(output)}


def prepare(tree, folder, entry):
    """Link the tree to `folder`, change there what the entry says; the arguments of the call."""
    # Hard links: whatever changes a file must put a new one in its place.
    shutil.copytree(tree, folder, copy_function=os.link, symlinks=True)
    source = folder / "tiny" / f"{entry.get('experiment', 'tiny')}.yaml"
    config = yaml.safe_load(source.read_text("utf-8"))
    for path, value in entry.get("set", {}).items():
        put(config, path.split("."), value)
    (folder / "changed.yaml").write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    for new, old in entry.get("copy", {}).items():
        copy = shutil.copytree if (folder / old).is_dir() else shutil.copy
        copy(folder / old, folder / new)
    for name in entry.get("edit", []):
        added = {".py": b"\nEDITED = True\n", ".yaml": b"\n# Edited.\n"}.get(Path(name).suffix, b"edited")
        replace(folder / name, (folder / name).read_bytes() + added)
    for name in entry.get("describe", []):
        content = (folder / name).read_bytes()
        replace(folder / name, content.replace(b'"""', b'"""Described anew. ', 1) + b"\n# A comment.\n")
    for pattern in entry.get("touch", []):
        for path in folder.glob(pattern):
            if path.is_file():
                replace(path, path.read_bytes())
    for name in entry.get("delete", []):
        (folder / name).unlink()
    return ["--configfile", "changed.yaml", *entry.get("options", [])]


def put(config, path, value):
    """Set a key; null takes one away that is there."""
    *parents, last = path
    for key in parents:
        config = config.setdefault(key, {})
    if value is None and last in config:
        del config[last]
    else:
        config[last] = value


def replace(path, content):
    """Give a file content and a new time, and leave its links alone."""
    path.unlink()
    path.write_bytes(content)

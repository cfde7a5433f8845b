"""Copies of a built tree in which something was changed, and what Snakemake plans for them."""

import os
import re
import shutil
from pathlib import Path
from unittest import mock

import yaml

from tests.support.forking import snakemake
from workflow.running import SUMMARY_FOLLOWS

LOG = re.compile(r"--log logs/([^/\s]+)/(\S+)\.log$", re.MULTILINE)


def mark_as_built(folder, configfile, jobs):
    """Replace all that an experiment's jobs write by empty files, and have Snakemake record them."""
    for path in (folder / name for job in jobs for name in job.outputs):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    # Empty files have no summary.
    with mock.patch.dict(os.environ, {SUMMARY_FOLLOWS: "true"}):
        status, output = snakemake(folder, "--cores", 1, "--touch", "--forceall", "--configfile", configfile)
    assert status == 0, output


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


def altered(tree, target, changes):
    """Write the tiny experiment of a tree with other values of keys, as `encoders.encoder.margin`; its path."""
    config = yaml.safe_load((tree / "tiny" / "tiny.yaml").read_text("utf-8"))
    for key, value in changes.items():
        put(config, key.split("."), value)
    target.write_text(yaml.safe_dump(config, sort_keys=False), "utf-8")
    return target


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

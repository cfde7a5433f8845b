"""Free disk without causing reruns.

Deletes caches of tools, Snakemake's logs, encodings in an old number of shards, and leftovers of killed processes.
Results and intermediate files stay: Snakemake would rebuild a missing one when something needs it, and then everything
made from it. Datasets with a running workflow are skipped.

Usage: python -m scripts.clean_cache
"""

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

from workflow.lock import is_owned
from workflow.machine import existing_shards

from cort.system.checksums import record_of
from cort.system.files import remove_leftovers
from scripts.sandbox import size_of

CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".snakemake/log", ".snakemake/slurm_logs", ".snakemake/shadow")
SOURCES = ("cort", "workflow", "scripts", "tests")
ENCODINGS = ("embeddings", "token_embeddings")
SHARD = re.compile(r"passages\.\d+-of-(\d+)\.arrow")


def clean(root: Path) -> Iterator[tuple[Path, int]]:
    """Delete in a project's folder; yield the deleted paths with their bytes."""
    bytecode = [path for name in SOURCES for path in (root / name).rglob("__pycache__")]
    sizes = {folder: size_of(folder) for folder in (*map(root.joinpath, CACHES), *bytecode) if folder.is_dir()}
    for folder, size in sizes.items():
        shutil.rmtree(folder)
        yield folder, size
    for dataset in sorted(path for path in (root / "results").glob("*") if path.is_dir()):
        if is_owned(dataset.name):
            continue
        # Deletes only those whose writer is dead.
        sizes = {path: size_of(path) for path in dataset.rglob(".*.tmp") if path.is_dir()}
        yield from ((path, sizes[path]) for path in remove_leftovers(sizes))
        for shard in old_shards(dataset):
            size = size_of(shard)
            shard.unlink()
            record_of(shard).unlink(missing_ok=True)
            yield shard, size


def old_shards(dataset: Path) -> Iterator[Path]:
    """Find shards of another number than the current one, in folders with all current shards."""
    folders = sorted(path for name in ENCODINGS for path in (dataset / name).glob("*"))
    current = existing_shards(folders)
    for folder in folders:
        counts = {path: int(match[1]) for path in sorted(folder.iterdir()) if (match := SHARD.fullmatch(path.name))}
        if current and list(counts.values()).count(current) == current:
            yield from (path for path, count in counts.items() if count != current)


def main() -> None:
    """Delete, and list what was deleted."""
    total = 0
    for path, size in clean(Path.cwd()):
        total += size
        sys.stdout.write(f"{size / 1e6:10.1f} MB  {os.path.relpath(path)}\n")
    sys.stdout.write(f"{total / 1e6:10.1f} MB  freed\n")


if __name__ == "__main__":
    main()

"""Free disk without causing reruns.

Deletes caches of tools, Snakemake's logs, shards of an old number, and leftovers of killed processes. An old shard is
any `passages.<i>-of-<n>.*` of another n than the newest complete set in its folder, and of a set that ended before it.
Results and intermediate files stay: Snakemake would rebuild a missing one when something needs it, and then everything
made from it. While Snakemake runs, nothing is deleted.

Usage: python -m scripts.clean
"""

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from cort.runtime.checksums import record_of
from cort.runtime.files import remove_leftovers

CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".snakemake/log", ".snakemake/slurm_logs", ".snakemake/shadow")
SOURCES = ("cort", "workflow", "scripts", "tests")
SHARD = re.compile(r"passages\.(\d+)-of-(\d+)\..+")


def clean(root: Path) -> Iterator[tuple[Path, int]]:
    """Delete in a project's folder; yield the deleted paths with their bytes."""
    bytecode = [path for name in SOURCES for path in (root / name).rglob("__pycache__")]
    for folder in filter(Path.is_dir, [*map(root.joinpath, CACHES), *bytecode]):
        size = size_of(folder)
        shutil.rmtree(folder)
        yield folder, size
    results = sorted((root / "results").rglob("*"))
    # Deletes only those whose writer is dead.
    sizes = {path: size_of(path) for path in results if path.match(".*.tmp") and path.is_dir()}
    yield from ((path, sizes[path]) for path in remove_leftovers(sizes))
    for shard in old_shards(results):
        size = size_of(shard)
        shard.unlink()
        record_of(shard).unlink(missing_ok=True)
        yield shard, size


def size_of(path: Path) -> int:
    """Bytes of a file, or of all files in a folder."""
    return sum(part.lstat().st_size for part in (path, *path.rglob("*")) if part.is_file())


def old_shards(paths: list[Path]) -> Iterator[Path]:
    """Find shards of sets that ended before the newest complete set in their folder."""
    folders: dict[Path, dict[int, dict[Path, float]]] = defaultdict(lambda: defaultdict(dict))
    for path in paths:
        if match := SHARD.fullmatch(path.name):
            folders[path.parent][int(match[2])][path] = path.stat().st_mtime
    for sets in folders.values():
        ends = {number: max(times.values()) for number, times in sets.items()}
        newest = max((ends[number] for number, times in sets.items() if len(times) == number), default=0.0)
        yield from (path for number, times in sets.items() if ends[number] < newest for path in times)


def main() -> None:
    """Delete, and list what was deleted."""
    root, total = Path(), 0
    if any((root / ".snakemake" / "locks").glob("*")):
        sys.exit("error: .snakemake/locks: found locks of a running workflow, expected none; wait for its end")
    for path, size in clean(root):
        total += size
        sys.stdout.write(f"{size / 1e6:10.1f} MB  {path}\n")
    sys.stdout.write(f"{total / 1e6:10.1f} MB  freed\n")


if __name__ == "__main__":
    main()

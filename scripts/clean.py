"""Free disk without causing reruns.

Deletes caches of tools, Snakemake's logs, shards of an old number, what killed processes left, and what Snakemake
made for a dataset and no config of it makes any more, such as runs of a removed system, with logs and benchmarks. An
old shard is any `passages.<i>-of-<n>.*` of another n than the newest complete set in its folder, and of a set that
ended before it. All other results and intermediate files stay: Snakemake would rebuild a missing one when something
needs it, and then everything made from it.

The configs of a dataset are all that name it, or files of it, in the project's folder and in the command line. If none
is what was built last, or one has a mistake, the dataset stays as it is. Files that Snakemake did not make stay, too,
unless they are in the folder of a model, index or page, and write-protected ones.

Usage: make clean-cache, which refuses while a build runs; or python -m scripts.clean [CONFIG ...]
"""

import re
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path

from cort.config import paths
from cort.config.load import ConfigError, read
from cort.runtime.claims import CLAIMS
from cort.runtime.files import UNFINISHED
from workflow.snakemake_api import Job, PlanError, made_files, plan

CACHES = (".mypy_cache", ".pytest_cache", ".ruff_cache", ".snakemake/log", ".snakemake/slurm_logs", ".snakemake/shadow")
SOURCES = ("cort", "workflow", "scripts", "tests")
# Folders in which no config is looked for.
WRITTEN = ("results", "logs", "benchmarks", "site")
# Files that stand for a folder which is written, and replaced, as a whole.
CARDS = (f"*/{paths.CARD}", f"*/{Path(paths.LEXICAL_INDEX).name}", f"*/explore/*/{Path(paths.EXPLORER).name}")
SHARD = re.compile(r"passages\.(\d+)-of-(\d+)\..+")


def clean(root: Path) -> Iterator[tuple[Path, int]]:
    """Delete in a project's folder; yield the deleted paths with their bytes."""
    bytecode = [path for name in SOURCES for path in (root / name).rglob("__pycache__")]
    unfinished = [*(root / "results").rglob(UNFINISHED)]
    for folder in filter(Path.is_dir, [*map(root.joinpath, CACHES), *bytecode, *unfinished]):
        size = size_of(folder)
        shutil.rmtree(folder)
        yield folder, size
    results = sorted((root / "results").rglob("*"))
    for file in (*old_shards(results), *(path for path in results if path.match(CLAIMS))):
        size = size_of(file)
        file.unlink()
        yield file, size


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


def configs_of(root: Path, more: Iterable[str]) -> dict[str, list[Path]]:
    """Find the configs that name each dataset, or files of it: in a project's folder, and some more."""
    folders = (path for path in root.iterdir() if path.is_dir() and path.name[0] != "." and path.name not in WRITTEN)
    files = [*root.glob("*.y*ml"), *(path for folder in folders for path in folder.rglob("*.y*ml"))]
    found = defaultdict(list)
    for path in sorted({*files, *(root / name for name in more)}):
        for dataset in datasets_of(root, path):
            found[dataset].append(path)
    return found


def datasets_of(root: Path, path: Path) -> set[str]:
    """Name the datasets that an experiment is about, or has files of; also if it has a mistake, or extends another."""
    text = path.read_text("utf-8", "replace") if path.is_file() else ""
    try:
        config = read(path)
        named = {str(config[key]) for key in [key for key in ("dataset", "extends") if key in config][:1]}
    except ConfigError:
        named = {*re.findall(r"""^\W*(?:dataset|extends)\W+([^\s"',}]+)""", text, re.MULTILINE)}
    if not named:
        return set()
    extended = {name for name in named if (root / name).is_file() and root / name != path}
    more = (datasets_of(root, root / name) for name in extended)
    return (named - extended).union(re.findall(rf"\b{paths.ROOT}/([\w.-]+)/", text), *more)


def jobs_of(config: Path) -> list[Job]:
    """List all jobs of an experiment.

    :raises PlanError: if it cannot be planned.
    """
    return plan(["--cores", "all", "--configfile", str(config)])[0]


def remove_unmade(root: Path, configs: Mapping[str, Sequence[Path]]) -> Iterator[tuple[Path, int]]:
    """Delete what Snakemake has made for datasets and no config of them makes; yield the paths with their bytes."""
    made = made_files(root)
    for dataset in sorted(path.parent.name for path in root.glob(paths.EXPERIMENT.format(dataset="*"))):
        try:
            jobs = [job for config in configs.get(dataset, []) for job in jobs_of(config)]
        except PlanError as error:
            stays(root / paths.ROOT / dataset, str(error).partition("\n")[0])
            continue
        if not any(paths.EXPERIMENT.format(dataset=dataset) in job.outputs and not job.planned for job in jobs):
            stays(root / paths.ROOT / dataset, "no config here is what was built last; build it, or name it by CONFIG=")
            continue
        known = {file for job in jobs for file in (*job.inputs, *job.outputs)}
        places = {place_of(log) for job in jobs for log in job.logs}

        def name(path: Path) -> str:
            return str(path.relative_to(root))

        for file, logs in made.items():
            if not file.startswith(f"{paths.ROOT}/{dataset}/") or file in known or not (root / file).is_file():
                continue
            unit = unit_of(root / file)
            if all(path.stat().st_mode & 0o200 for path in unit) and known.isdisjoint(map(name, unit)):
                yield from map(remove, unit)
            else:
                stays(root / file, "it is write-protected, or a part of what a config makes")
                places |= {*map(place_of, logs)}
        for pattern in (f"logs/{dataset}/**/*.log", f"benchmarks/{dataset}/**/*.tsv"):
            unknown = (path for path in root.glob(pattern) if place_of(name(path)) not in places)
            yield from map(remove, sorted(unknown))


def unit_of(path: Path) -> list[Path]:
    """List a file, or those of the whole folder that it stands for."""
    files = sorted(path.parent.rglob("*")) if any(map(path.match, CARDS)) else [path]
    return [file for file in files if file.is_file()]


def stays(path: Path, why: str) -> None:
    """Say why something is not deleted."""
    sys.stderr.write(f"{path} stays: {why}\n")


def place_of(path: str) -> tuple[str, ...]:
    """Return the rule and the name of the job of a log or benchmark; without wildcards, both are the rule."""
    rule, *name = Path(path).with_suffix("").parts[2:]
    return rule, *(name or [rule])


def remove(path: Path) -> tuple[Path, int]:
    """Delete a file, and the folders that are then empty; return it with its bytes."""
    size = size_of(path)
    path.unlink()
    for folder in path.parents:
        if folder.parent.name in WRITTEN or any(folder.iterdir()):
            break
        folder.rmdir()
    return path, size


def main(argv: Sequence[str] | None = None) -> None:
    """Delete, and list what was deleted."""
    root, total = Path(), 0
    # First, because plans write logs.
    unmade = remove_unmade(root, configs_of(root, sys.argv[1:] if argv is None else argv))
    for path, size in chain(unmade, clean(root)):
        total += size
        sys.stdout.write(f"{size / 1e6:10.1f} MB  {path}\n")
    sys.stdout.write(f"{total / 1e6:10.1f} MB  freed\n")


if __name__ == "__main__":
    main()

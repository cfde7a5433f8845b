"""Number of GPUs, threads and shards for this machine; they affect speed only.

Existing shards keep their number, so that another machine does not rebuild them.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cort.system.devices import visible_devices
from workflow import snakemake_api

# More threads per job help little.
THREADS = 8


@dataclass(frozen=True)
class Machine:
    """GPUs and cores for all jobs together; both None on a cluster, which chooses machines."""

    gpus: int | None
    cores: int | None

    def gpus_for(self, requested: int) -> int:
        """Limit the GPUs that a job requests to those of this machine; a cluster gets the whole request."""
        return requested if self.gpus is None else min(requested, self.gpus)

    @property
    def threads(self) -> int:
        """Threads of a job with a GPU, so that as many jobs as GPUs can run."""
        return max(1, min(THREADS, self.cores // self.gpus)) if self.gpus and self.cores else THREADS

    @property
    def half(self) -> int:
        """Threads of a job that is one of several alike, and leaves half of this machine's cores to others."""
        return THREADS if self.cores is None else max(1, min(THREADS, self.cores // 2))


def survey(workflow: Any) -> Machine:
    """Find the GPUs that this call of Snakemake may use, and limit its jobs to them unless the user has set a limit.

    Jobs on a cluster, and calls of Snakemake within a job, are not limited.
    """
    if not snakemake_api.is_main(workflow) or snakemake_api.is_on_cluster(workflow):
        return Machine(None, None)
    gpus = snakemake_api.limit(workflow, "gpu", len(visible_devices()))
    return Machine(gpus, snakemake_api.cores_of(workflow))


def fix_shards(workflow: Any, process: str, folders: Iterable[str], default: int) -> int:
    """Return the number of shards: that of --set-scatter, else of the shards in `folders`, else `default`."""
    # Passed to calls of Snakemake within jobs, so that shards that appear meanwhile do not change the number.
    return snakemake_api.fix_scatter(workflow, process, existing_shards(map(Path, folders)) or default)


def existing_shards(folders: Iterable[Path]) -> int | None:
    """Find the number n of existing shards `passages.<i>-of-<n>.arrow`, None if there are none.

    Among several, prefer the one complete in most folders, then the one with most of its shards, then the newest.
    """
    ages: dict[int, dict[Path, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for path in folder.glob("passages.*-of-*"):
            match = re.fullmatch(r"passages\.(\d+)-of-(\d+)\.(arrow|parquet)", path.name)
            if match and 1 <= int(match[1]) <= int(match[2]):
                ages[int(match[2])][folder].append(path.stat().st_mtime)

    def order(shards: int) -> tuple[int, float, float]:
        parts = ages[shards].values()
        complete = sum(len(files) == shards for files in parts)
        return complete, sum(map(len, parts)) / shards, max(map(max, parts))

    return max(ages, key=order, default=None)

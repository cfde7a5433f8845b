"""What the machine decides: how many jobs share its GPUs, with how many threads, and the number of shards of passages.

Speed alone depends on these. The number of shards is that of the shards already made, so that another machine leaves
finished ones as they are.
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

# Threads of a stage that computes; more help little.
THREADS = 8


@dataclass(frozen=True)
class Machine:
    """Where jobs run: `gpus` at a time on `cores`, or on machines of their own that a cluster finds (both None)."""

    gpus: int | None
    cores: int | None

    def gpus_for(self, asked: int) -> int:
        """Count the GPUs a job gets that asks for some; a cluster is asked for all."""
        return asked if self.gpus is None else min(asked, self.gpus)

    @property
    def threads(self) -> int:
        """Threads of a job with a GPU, few enough that all GPUs have one."""
        return max(1, min(THREADS, self.cores // self.gpus)) if self.gpus and self.cores else THREADS


def survey(workflow: Any) -> Machine:
    """Find the GPUs this call of Snakemake may use, and limit its jobs to them unless the user has set a limit.

    Jobs that a cluster runs, and calls of Snakemake within such a job, are not limited.
    """
    if not snakemake_api.is_main(workflow) or snakemake_api.is_on_cluster(workflow):
        return Machine(None, None)
    gpus = snakemake_api.limit(workflow, "gpu", len(visible_devices()))
    return Machine(gpus, snakemake_api.cores_of(workflow))


def fix_shards(workflow: Any, process: str, folders: Iterable[str], default: int) -> int:
    """Return the number of shards: that of --set-scatter, else of the shards in `folders`, else `default`."""
    # Calls of Snakemake within this one are told: shards that come and go meanwhile change nothing.
    return snakemake_api.fix_scatter(workflow, process, existing_shards(map(Path, folders)) or default)


def existing_shards(folders: Iterable[Path]) -> int | None:
    """Find the number of shards that files like `passages.<i>-of-<n>.arrow` are parts of, None if there are none.

    Of several, it is the one that is complete in most folders, then the one with most of its shards, then the newest.
    """
    ages: dict[int, dict[Path, list[float]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        for path in folder.glob("passages.*-of-*"):
            match = re.fullmatch(r"passages\.(\d+)-of-(\d+)\.(arrow|parquet)", path.name)
            if match and 1 <= int(match[1]) <= int(match[2]):
                ages[int(match[2])][folder].append(path.stat().st_mtime)

    def order(shards: int) -> tuple[int, float, float]:
        parts = ages[shards].values()
        complete = sum(len(some) == shards for some in parts)
        return complete, sum(map(len, parts)) / shards, max(map(max, parts))

    return max(ages, key=order, default=None)

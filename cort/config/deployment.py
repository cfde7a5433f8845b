"""Which systems can be deployed to search engines, and what these need."""

from __future__ import annotations

from cort.config.experiment import Experiment
from cort.systems.base import System

#: results that OpenSearch and Elasticsearch take from a part, by default
MOST = 10_000


def deployed_parts(experiment: Experiment, name: str) -> list[System]:
    """Return what an engine runs for a system: BM25, search over vectors, or both; nothing if it cannot be deployed."""
    system = experiment.systems[name]
    parts = [experiment.systems[part] for part in system.parts()]
    if not all(one.fits_engines() for one in (system, *parts)) or any(part.parts() for part in parts):
        return []
    has_terms = {part.lexical_index() is not None for part in parts}
    return (parts if len(parts) == len(has_terms) == 2 else []) if parts else [system]


def checked_split(experiment: Experiment, name: str) -> str:
    """Choose the split whose first queries check a deployment: the first evaluated one, if there is any."""
    splits = experiment.splits_of(name)
    return next((split for split in experiment.evaluated_splits if split in splits), splits[0])

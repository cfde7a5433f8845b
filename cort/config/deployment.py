"""Which systems can be deployed to search engines, and what these need."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import listed
from cort.config.experiment import Experiment
from cort.systems.base import System

# Results that OpenSearch and Elasticsearch take from a part, by default.
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


def check_deployments(experiment: Experiment) -> Iterator[str]:
    """Yield a line for each mistake."""
    config = experiment.config
    for name, entry in config["deploy"].items():
        place, system = f"deploy.{name}", entry["system"]
        known = [other for other in config["systems"] if deployed_parts(experiment, other)]
        if system not in known:
            deployable = "BM25 over plain passages, exact dense search, or fuse of both by rrf or min-max linear"
            yield f"{place}.system: found {system!r}, expected one of {listed(known)} ({deployable}); name one"
        if config["depth"] > MOST:
            fix = "lower it or remove the deployment"
            yield f"depth: found {config['depth']}, expected at most {MOST} with {place}; {fix}"

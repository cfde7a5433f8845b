"""Which systems can be deployed to search engines, and what these need."""

from __future__ import annotations

from collections.abc import Iterator

from cort.experiment.config import splits_of
from cort.settings.config import Config, evaluated_splits, listed
from cort.systems.base import Results, System
from cort.systems.registry import system_of

# Results that OpenSearch and Elasticsearch take from a part, by default.
MOST = 10_000


def deployed_parts(config: Config, name: str, results: Results | None = None) -> list[System]:
    """Return what an engine runs for a system: BM25, search over vectors, or both; nothing if it cannot be deployed."""
    system = system_of(config, name, results)
    parts = [system_of(config, part, results) for part in system.parts()]
    if not all(one.fits_engines() for one in (system, *parts)) or any(part.parts() for part in parts):
        return []
    kinds = {part.lexical_index() is not None for part in parts}
    return (parts if len(parts) == len(kinds) == 2 else []) if parts else [system]


def checked_split(config: Config, name: str) -> str:
    """Choose the split whose first queries check a deployment: the first evaluated one, if there is any."""
    splits = splits_of(config, name)
    return next((split for split in evaluated_splits(config) if split in splits), splits[0])


def check_deployments(config: Config) -> Iterator[str]:
    """Yield a line for each mistake."""
    for name, entry in config["deploy"].items():
        place, system = f"deploy.{name}", entry["system"]
        known = [other for other in config["systems"] if deployed_parts(config, other)]
        if system not in known:
            kinds = "BM25 over plain passages, exact dense search, or fuse of both by rrf or min-max linear"
            yield f"{place}.system: found {system!r}, expected one of {listed(known)} ({kinds}); name one"
        if config["depth"] > MOST:
            fix = "lower it or remove the deployment"
            yield f"depth: found {config['depth']}, expected at most {MOST} with {place}; {fix}"

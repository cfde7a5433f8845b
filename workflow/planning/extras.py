"""Look before anything runs for the packages that only some settings need, as `preflight` looks for all else."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterable, Iterator

from cort.models.settings import INSTALL_ONNX
from cort.retrieval.graphs import INSTALL_FAISS
from cort.system.errors import input_error
from workflow.experiment.config import Config
from workflow.planning.dryrun import Job

OF_IVFPQ = {"ivfpq", "audit_tokens", "retrieve_ivfpq"}


def check_extras(jobs: Iterable[Job], config: Config) -> Iterator[str]:
    """Look for faiss, if a job uses an index of token vectors, and for onnx, if models are exported to it."""
    rules = {job.rule for job in jobs}
    extras = (
        ("faiss", bool(rules & OF_IVFPQ), "systems with ivfpq", INSTALL_FAISS),
        ("onnx", "export_model" in rules and bool(config["export_onnx"]), "export_onnx", INSTALL_ONNX),
    )
    for name, wanted, use, fix in extras:
        if wanted and importlib.util.find_spec(name) is None:
            yield str(input_error(name, "no such package", f"{name}, for {use}", fix))

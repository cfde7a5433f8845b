"""Check what an experiment's config says about systems that retrieve, and the indexes they search."""

from __future__ import annotations

from collections.abc import Iterator

from cort.experiment.config import LATE_INTERACTION, token_encoders
from cort.experiment.models import LEARNERS, is_trained, sources
from cort.formats.schemas import check_name
from cort.retrieval.graphs import GRAPHS, INDEXES, TOKEN_INDEXES
from cort.settings.config import Config, entries, listed


def check_retrieve(place: str, name: str, system: Config, config: Config) -> Iterator[str]:
    """Check what a system retrieves with."""
    kinds = [kind for kind in INDEXES if kind in system]
    if (index := system["retrieve"]) in config["lexical"]:
        for kind in kinds:
            found, wanted = f"found {kind} with {index}", "a re-ranker" if kind in TOKEN_INDEXES else "an encoder"
            yield f"{place}.{kind}: {found}, expected it with {wanted}; name {wanted} or remove it"
        return
    if index in config["rerankers"] and index not in config["encoders"]:
        yield from _check_late(place, index, system, config)
        return
    known = [*config["lexical"], *config["encoders"], *token_encoders(config)]
    yield from check_name(f"{place}.retrieve", index, known)
    if "bm25" in system:
        yield f"{place}.bm25: found bm25 with an encoder, expected it with an index under lexical; remove it"
    for kind in system.keys() & TOKEN_INDEXES.keys():
        expected = f"it with a re-ranker of the kind {LATE_INTERACTION}"
        yield f"{place}.{kind}: found {kind} with an encoder, expected {expected}; remove it"
    if len(kinds) > 1:
        yield f"{place}: found {listed(kinds)}, expected one of them; make two systems"
    encoder = config["encoders"].get(system["retrieve"]) or {}
    for kind in kinds:
        if encoder.get("similarity") == "inner_product":
            yield f"{place}.{kind}: found an encoder of inner products, expected one of angles; remove {kind}"
    if "hnsw" in system:
        yield from _check_ef(place, name, system["hnsw"]["ef"], config)


def _check_late(place: str, name: str, system: Config, config: Config) -> Iterator[str]:
    """Check that a re-ranker can retrieve, and with no index but one of tokens."""
    reranker = config["rerankers"][name]
    if reranker is not None and (kind := reranker["kind"]) != LATE_INTERACTION:
        expected = f"a re-ranker of the kind {LATE_INTERACTION}, which alone retrieves"
        yield f"{place}.retrieve: found {name!r}, a {kind}, expected {expected}; name an encoder or change the kind"
    for key in sorted(system.keys() & {"bm25", *GRAPHS}):
        expected = "it with an index under lexical" if key == "bm25" else "it with an encoder"
        yield f"{place}.{key}: found {key} with late interaction, expected {expected}; remove it"
    if "ivfpq" in system:
        if reranker is not None:
            yield from _check_ivfpq(f"rerankers.{name}", reranker)
        if system["ivfpq"]["probes"] == "auto" and config["audit"] is not None:
            candidates, audited = system["ivfpq"]["candidates"], config["audit"]["candidates"]
            if candidates != audited:
                found, expected = f"found {candidates} with probes auto", f"{audited} as in audit.candidates"
                yield f"{place}.ivfpq.candidates: {found}, expected {expected}; make them the same"


def _check_ivfpq(place: str, reranker: Config) -> Iterator[str]:
    """Check that an index can be built as it is asked for."""
    index, dimension = reranker["ivfpq"], reranker["dimension"]
    if dimension % index["bytes"]:
        expected = f"a divisor of the dimension, {dimension}"
        yield f"{place}.ivfpq.bytes: found {index['bytes']}, expected {expected}; set bytes, or change the dimension"
    if index["sample"] is not None and index["sample"] < (index["lists"] or 0):
        found, expected = f"found {index['sample']}", f"{index['lists']} (lists) or more"
        yield f"{place}.ivfpq.sample: {found}, expected {expected}; raise it or lower lists"


def _check_ef(place: str, name: str, ef: int | str, config: Config) -> Iterator[str]:
    learnt_from = any(
        is_trained(model) and name in sources(model[source])
        for section, (_, source) in LEARNERS.items()
        for _, model in entries(config, section)
    )
    key = "training_depth" if learnt_from and config["training_depth"] > config["depth"] else "depth"
    if isinstance(ef, int) and ef < config[key]:
        yield f"{place}.hnsw.ef: found {ef}, expected {config[key]} ({key}) or more; raise it or lower {key}"
    if config["audit"] is not None and (found := max(config["audit"]["efs"])) < config["depth"]:
        yield f"audit.efs: found {found} at most, expected one of {config['depth']} (depth) or more; add it"

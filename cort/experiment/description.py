"""Say how rankings are made, for the report."""

from __future__ import annotations

from collections.abc import Iterator

from cort.experiment.config import compared, kind_of, parts_of, tuned_by
from cort.experiment.models import is_trained
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import INDEXES
from cort.settings.config import Config


def pairs(config: Config, split: str) -> dict[str, list[tuple[str, str]]]:
    """List the pairs of systems that are compared on a split: with their parts, with their starts, and contrasts."""
    names = compared(config, split)
    found = {
        "parts": [(name, part) for name in names for part in parts_of(config["systems"][name])],
        "starts": [(name, start) for name in names for start in _starts(config, name)],
        "contrasts": [(first, second) for first, second in config["evaluation"]["contrasts"]],
    }
    return {kind: [pair for pair in listed if {*pair} <= {*names}] for kind, listed in found.items()}


def _starts(config: Config, name: str) -> Iterator[str]:
    """Find systems that search as this one does, but with the encoder that the training of its encoder started from."""
    system, encoders = config["systems"][name], config["encoders"]
    encoder = encoders.get(system.get("retrieve"))
    if encoder is None or not is_trained(encoder):
        return
    starts = {encoder.get("start"), *(other for other in encoders if _is_untrained(encoders[other], encoder))}
    for other, one in config["systems"].items():
        if one.get("retrieve") in starts - {None} and one == system | {"retrieve": one["retrieve"]}:
            yield other


def _is_untrained(other: Config, encoder: Config) -> bool:
    """Tell whether an encoder is the released one that another was trained from."""
    origins = [[one.get(key) for key in ("pretrained", "revision")] for one in (other, encoder)]
    return "pretrained" in encoder and not is_trained(other) and origins[0] == origins[1]


# How an index says that its texts are other than the passages.
CHANGED_TEXT = {"expand": "passages expanded by", "weigh": "terms weighed by"}


def describe(config: Config, name: str) -> str:
    """Say in a few words how a system's ranking is made."""
    system = config["systems"][name]
    match kind_of(config, system):
        case "bm25":
            own, index = system.get("bm25"), config["lexical"][system["retrieve"]]
            made = "".join(f", {words} {index[key]}" for key, words in CHANGED_TEXT.items() if key in index)
            return f"BM25, Anserini{made}" + (f", k1 = {own['k1']:g}, b = {own['b']:g}" if own else "")
        case "late_interaction":
            return f"late interaction {system['retrieve']}, exact search"
        case "ivfpq":
            return f"late interaction {system['retrieve']}, IVF-PQ with {_describe_width(system, 'ivfpq')}"
        case "exact":
            return f"encoder {system['retrieve']}, exact search"
        case "onng" | "hnsw" as kind:
            return f"encoder {system['retrieve']}, {kind.upper()} with {_describe_width(system, kind)}"
        case "interleave":
            return f"{' and '.join(system['interleave'])} interleaved"
        case "fuse":
            return f"{' and '.join(parts_of(system))} merged by {_describe_fusion(system['fuse'])}"
        case "rerank":
            how = f"first {system['depth']} of {system['rerank']} re-ranked by {system['reranker']}"
            if measure := tuned_by(system):
                return f"{how}, its weight tuned for {measure} on validation"
            return how if system["weight"] == 1 else f"{how}, its weight {system['weight']:g}"
        case _:
            return "published run"


def _describe_width(system: Config, kind: str) -> str:
    key = INDEXES[kind].parameter
    width = system[kind][key]
    return f"recall {system[kind]['recall']:g} of exact search" if width == "auto" else f"{key} {width}"


def _describe_fusion(fusion: Config) -> str:
    method, keys = str(fusion["method"]), FUSIONS[fusion["method"]].settings
    if "k" in keys:
        return f"{method}, k = {fusion['k']}"
    if "weights" not in keys:
        return method
    how = "equal weights"
    if "tune" in fusion:
        how = f"weights tuned for {fusion['tune']} on validation"
    elif "weights" in fusion:
        how = f"weights {', '.join(f'{weight:g}' for weight in fusion['weights'])}"
    return f"{method} combination of {fusion['normalization']} scores, {how}"

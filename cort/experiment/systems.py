"""Check what an experiment's config says about base models, encoders, re-rankers and systems."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from cort.evaluation.names import KNOWN, parse_measure
from cort.experiment.config import KINDS, parts_of, tuned_by
from cort.experiment.downloads import check_triples
from cort.experiment.models import (
    LEARNERS,
    is_trained,
    place_of_base_model,
    ranks_before,
    released_model,
    sources,
)
from cort.experiment.retrieval import check_retrieve
from cort.formats.schemas import check_name
from cort.models.settings import REVISION
from cort.retrieval.fusion import FUSIONS
from cort.retrieval.graphs import INDEXES
from cort.retrieval.normalization import NORMALIZATIONS
from cort.settings.config import TRAINING_SPLITS, Config, entries, listed, ranked_splits
from cort.system.errors import shorten
from cort.training.settings import leaves_out, needs_teacher


def check_measures(place: str, names: list[str]) -> Iterator[str]:
    """Refuse measures that do not exist, or stand there twice."""
    for name in names:
        if parse_measure(name) is None:
            yield f"{place}: found {name!r}, expected one of {KNOWN}; fix it"
    yield from check_once(place, names, "measure")


def check_once(place: str, names: Iterable[str], what: str) -> Iterator[str]:
    """Refuse names that stand there twice."""
    for name, times in Counter(names).items():
        if times > 1:
            yield f"{place}: found {name} {times} times, expected each {what} once; remove one"


def check_growing(place: str, numbers: list[float]) -> Iterator[str]:
    """Refuse numbers that do not grow."""
    if numbers != sorted(set(numbers)):
        yield f"{place}: found {numbers}, expected growing numbers; sort them"


def check_base_models(config: Config) -> Iterator[str]:
    """Check where base models come from."""
    for name, model in entries(config, "base_models"):
        place, origins = place_of_base_model(config, name), sorted(model.keys() & {"pretrained", "architecture"})
        if len(origins) != 1:
            yield f"{place}: found {listed(origins)}, expected exactly one of pretrained and architecture; keep one"
        elif "revision" in model and "architecture" in model:
            yield f"{place}: found revision, expected it with pretrained alone; remove it"
        elif (revision := model.get("revision")) is not None and not REVISION.fullmatch(revision):
            expected = "a commit, 40 hexadecimal digits"
            yield f"{place}.revision: found {shorten(revision)}, expected {expected}; name it, as a branch moves"


def check_models(config: Config) -> Iterator[str]:
    """Check what encoders and re-rankers are made of and trained on."""
    for section, (_, source) in LEARNERS.items():
        for name, model in entries(config, section):
            place = f"{section}.{name}"
            if "base_model" in model and "pretrained" not in model:
                known = [one for one in config["base_models"] if released_model(config, one) is None]
                yield from check_name(f"{place}.base_model", model["base_model"], known)
            if is_trained(model):
                yield from _check_training(place, model, source, config)
                yield from _check_origins(place, name, model, config) if section == "encoders" else ()
    for name in config["encoders"].keys() & config["lexical"].keys():
        yield (
            f"encoders.{name}: found the name {name}, expected another, as `retrieve: {name}` means the index "
            f"lexical.{name}; rename it"
        )


def _check_training(place: str, model: Config, source: str, config: Config) -> Iterator[str]:
    """Check what a training needs; `source` is the key of its examples."""
    if (metric := model["training"]["best_model_metric"]) != "loss":
        yield from check_measures(f"{place}.training.best_model_metric", [metric])
    yield from _check_examples(f"{place}.{source}", model[source], config)
    for split in TRAINING_SPLITS:
        if split not in config["splits"]:
            yield f"splits: found no split {split}, expected it for training {place}; add it"


def _check_examples(place: str, source: Config, config: Config) -> Iterator[str]:
    """Check which results a model learns from."""
    yield from check_triples(f"{place}.file", source.get("file"))
    if source.get("random", 0) > source.get("negatives", 0):
        found = f"found {source['random']}, expected at most the {source['negatives']} negatives"
        yield f"{place}.random: {found}; lower it or raise negatives"
    for system in sources(source):
        yield from check_name(f"{place}.system", system, config["systems"])
    yield from check_once(f"{place}.system", sources(source), "system")
    first, last, depth = source["first_rank"], source["last_rank"], config["training_depth"]
    if not first <= last <= depth:
        yield (
            f"{place}: found the ranks {first} to {last}, expected them in order and within "
            f"training_depth ({depth}); fix the ranks or raise training_depth"
        )
    if source["minimum_results"] > depth:
        yield (
            f"{place}.minimum_results: found {source['minimum_results']}, expected at most "
            f"training_depth ({depth}), or no query is left; lower it or raise training_depth"
        )


def _check_origins(place: str, name: str, encoder: Config, config: Config) -> Iterator[str]:
    """Check what an encoder starts from and who teaches it."""
    if needs_teacher(encoder["loss"]) != ("teacher" in encoder):
        found = "a teacher" if "teacher" in encoder else "no teacher"
        yield f"{place}: found {found} with the loss {encoder['loss']}, expected one with margin_mse alone; fix it"
    if encoder["relative_margin"] is not None:
        yield from _check_margin(f"{place}.relative_margin", encoder, config["base_models"])
    if "teacher" in encoder:
        yield from check_name(f"{place}.teacher", encoder["teacher"], config["rerankers"])
    if "start" in encoder:
        yield from check_name(f"{place}.start", encoder["start"], config["encoders"])
        started = config["encoders"].get(encoder["start"]) or {}
        for key in ("pretrained", "revision") if "pretrained" in encoder else ("base_model", "dimension", "projection"):
            there, here = started.get(key, "none"), encoder.get(key, "none")
            if started and there != here:
                yield (
                    f"{place}.start: found {encoder['start']!r} with {key} {there}, expected {here} as here; name "
                    "another encoder or change it"
                )
        chain = [name]
        while (start := (config["encoders"].get(chain[-1]) or {}).get("start")) is not None and start not in chain:
            chain.append(start)
        if start == name:
            yield f"{place}.start: found the circle {' -> '.join([*chain, name])}, expected a first one; remove a start"


def _check_margin(place: str, encoder: Config, base_models: Config) -> Iterator[str]:
    """Check that an encoder can tell before training which passages are near, and that its loss can leave them out."""
    found, fix = f"found {encoder['relative_margin']:g}", "or set it to null"
    if not leaves_out(encoder["loss"]):
        yield f"{place}: {found} with the loss {encoder['loss']}, expected it with info_nce; change the loss {fix}"
    elif not ranks_before(encoder, base_models):
        expected = "expected weights that rank before training: a start, or a pretrained model without projection"
        yield f"{place}: {found} with an encoder of random weights, {expected}; name one {fix}"


def check_systems(config: Config) -> Iterator[str]:
    """Check what systems are made of."""
    for name, system in entries(config, "systems"):
        place, kinds = f"systems.{name}", [kind for kind in KINDS if kind in system]
        yield from _check_published(f"{place}.run", system.get("run"), ranked_splits(config))
        if len(kinds) != 1:
            yield f"{place}: found {listed(kinds)}, expected exactly one of {listed(KINDS)}; keep one"
            continue
        allowed = {"retrieve": {"bm25", *INDEXES}, "rerank": {"reranker", "depth", "weight", "tune"}}.get(
            kinds[0], set()
        )
        for key in system.keys() - {kinds[0]} - allowed:
            yield f"{place}.{key}: found {key} with {kinds[0]}, expected it not to be there; remove it"
        if "retrieve" in system:
            yield from check_retrieve(place, name, system, config)
        if "fuse" in system:
            yield from _check_fusion(f"{place}.fuse", system["fuse"])
        if measure := tuned_by(system):
            yield from _check_tuning(f"{place}.fuse.tune" if "fuse" in system else f"{place}.tune", measure, config)
        part_place = f"{place}.fuse.systems" if "fuse" in system else f"{place}.{kinds[0]}"
        for part in parts_of(system):
            yield from check_name(part_place, part, config["systems"])
        yield from check_once(part_place, parts_of(system), "system")
        if "rerank" in system:
            yield from _check_rerank(place, system, config)


def _check_fusion(place: str, fusion: Config) -> Iterator[str]:
    """Check how rankings are merged."""
    yield from check_name(f"{place}.method", fusion["method"], FUSIONS)
    yield from check_name(f"{place}.normalization", fusion["normalization"], NORMALIZATIONS)
    weights, parts = fusion.get("weights"), len(fusion["systems"])
    if weights is not None and len(weights) != parts:
        yield f"{place}.weights: found {len(weights)} weights, expected {parts}, one per system; add or remove some"
    elif weights is not None and not any(weights):
        yield f"{place}.weights: found 0 alone, expected one above 0; raise one"


def _check_tuning(place: str, measure: str, config: Config) -> Iterator[str]:
    """Check that weights can be tuned: by a measure, on validation queries, on rankings like those they are for."""
    yield from check_measures(place, [measure])
    if "validation" not in config["splits"]:
        yield f"{place}: found no split validation, expected validation queries to tune on; add the split"
    depth, training_depth = config["depth"], config["training_depth"]
    if training_depth > depth:
        yield (
            f"{place}: found training_depth {training_depth}, expected at most depth ({depth}), which runs of "
            "validation have with it; lower training_depth or raise depth"
        )


def _check_published(place: str, run: str | Config | None, splits: list[str]) -> Iterator[str]:
    """Check which splits a published run is for."""
    if isinstance(run, str) and "{split}" not in run and len(splits) > 1:
        yield f"{place}: found one path for the splits {listed(splits)}, expected {{split}} in it; add it"
    for split in run if isinstance(run, dict) else []:
        if split not in splits:
            yield f"{place}: found the split {split!r}, expected one of {listed(splits)}; fix the name"


def _check_rerank(place: str, system: Config, config: Config) -> Iterator[str]:
    name = system.get("reranker")
    if name is None:
        yield f"{place}: found no reranker, expected one of {listed(config['rerankers'])}; name it"
        return
    yield from check_name(f"{place}.reranker", name, config["rerankers"])
    if reranker := config["rerankers"].get(name):
        limit = min(reranker["depth"], config["depth"])
        if system.get("depth", limit) > limit:
            yield (
                f"{place}.depth: found {system['depth']}, expected at most {limit}, the candidates that are retrieved "
                f"(depth) and scored (rerankers.{name}.depth); lower it or raise these"
            )

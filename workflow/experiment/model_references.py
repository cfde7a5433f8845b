"""Check what an experiment's config says about base models, encoders and re-rankers."""

from __future__ import annotations

from collections.abc import Iterator

from cort.formats.schemas import check_name
from cort.training.settings import needs_teacher
from workflow.experiment.config import LEARNERS, TRAINING_SPLITS, Config, is_trained
from workflow.experiment.naming import check_measures, entries, listed


def check_base_models(config: Config) -> Iterator[str]:
    """Check where base models come from."""
    for name, model in entries(config, "base_models"):
        place = f"base_models.{name}"
        origins = sorted(model.keys() & {"pretrained", "architecture"})
        if len(origins) != 1:
            yield f"{place}: found {listed(origins)}, expected exactly one of pretrained and architecture; keep one"
        elif "revision" in model and "architecture" in model:
            yield f"{place}: found revision, expected it with pretrained alone; remove it"


def check_learners(config: Config) -> Iterator[str]:
    """Check what encoders and re-rankers are made of and trained on."""
    for section, (_, source) in LEARNERS.items():
        for name, model in entries(config, section):
            place, options, depth = f"{section}.{name}", model[source], config["training_depth"]
            yield from check_name(f"{place}.base_model", model["base_model"], config["base_models"])
            if not is_trained(model):
                continue
            yield from check_name(f"{place}.{source}.system", options["system"], config["systems"])
            first, last = options["first_rank"], options["last_rank"]
            if not first <= last <= depth:
                yield (
                    f"{place}.{source}: found the ranks {first} to {last}, expected them in order and within "
                    f"training_depth ({depth}); fix the ranks or raise training_depth"
                )
            if options["minimum_results"] > depth:
                yield (
                    f"{place}.{source}.minimum_results: found {options['minimum_results']}, expected at most "
                    f"training_depth ({depth}), or no query is left; lower it or raise training_depth"
                )
            for split in TRAINING_SPLITS:
                if split not in config["splits"]:
                    yield f"splits: found no split {split}, expected it for training {place}; add it"
    if "bm25" in config["encoders"]:
        yield "encoders.bm25: found the name bm25, expected another, as `retrieve: bm25` means BM25; rename it"
    for name in config["encoders"].keys() & config["rerankers"].keys():
        yield f"rerankers.{name}: found the name of an encoder, expected another, as reports show both; rename one"


def check_trainings(config: Config) -> Iterator[str]:
    """Check how models are chosen, what encoders start from, and who teaches them."""
    for section in LEARNERS:
        for name, model in entries(config, section):
            if model["training"]["best_model_metric"] != "loss":
                yield from check_measures(
                    f"{section}.{name}.training.best_model_metric", [model["training"]["best_model_metric"]]
                )
    for name, encoder in entries(config, "encoders"):
        yield from _check_origins(f"encoders.{name}", name, encoder, config)


def _check_origins(place: str, name: str, encoder: Config, config: Config) -> Iterator[str]:
    """Check what an encoder starts from and who teaches it."""
    if needs_teacher(encoder["loss"]) != ("teacher" in encoder):
        found = "a teacher" if "teacher" in encoder else "no teacher"
        yield f"{place}: found {found} with the loss {encoder['loss']}, expected one with margin_mse alone; fix it"
    if "teacher" in encoder:
        yield from check_name(f"{place}.teacher", encoder["teacher"], config["rerankers"])
    if "start" in encoder:
        yield from check_name(f"{place}.start", encoder["start"], config["encoders"])
        started = config["encoders"].get(encoder["start"]) or {}
        for key in ("base_model", "dimension", "projection"):
            if started and started[key] != encoder[key]:
                yield (
                    f"{place}.start: found {encoder['start']!r} with {key} {started[key]}, expected {encoder[key]} as "
                    "here; name another encoder or change it"
                )
        chain = [name]
        while (start := (config["encoders"].get(chain[-1]) or {}).get("start")) is not None and start not in chain:
            chain.append(start)
        if start == name:
            yield f"{place}.start: found the circle {' -> '.join([*chain, name])}, expected a first one; remove a start"

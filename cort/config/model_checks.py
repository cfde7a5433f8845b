"""Check base models, encoders and re-rankers in an experiment's config."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

from cort.config.entries import LEARNERS, TRAINING_SPLITS, Config, is_sparse, is_trained
from cort.config.experiment import Experiment
from cort.config.model_facts import ranks_before
from cort.models.settings import REVISION
from cort.runtime.errors import check_name, shorten
from cort.training.losses import ENCODER_OBJECTIVES


def check_base_models(experiment: Experiment) -> Iterator[str]:
    """Check where base models come from."""
    for name, model in experiment.config["base_models"].items():
        place = experiment.place_of_base_model(name)
        if "model_type" not in model.get("architecture", {"model_type": ""}):
            yield f"{place}.architecture: found no key model_type, expected it to be set; add it"
        elif (revision := model.get("revision")) is not None and not REVISION.fullmatch(revision):
            expected = "a commit, 40 hexadecimal digits"
            yield f"{place}.revision: found {shorten(revision)}, expected {expected}; name it, as a branch moves"


def check_models(experiment: Experiment) -> Iterator[str]:
    """Check what encoders and re-rankers are based on and trained on."""
    config = experiment.config
    for section, source in LEARNERS.items():
        for name, model in config[section].items():
            place = f"{section}.{name}"
            if "base_model" in model and "pretrained" not in model:
                known = [name for name in config["base_models"] if experiment.released_model(name) is None]
                yield from check_name(f"{place}.base_model", model["base_model"], known)
            if model.get("pooling") == "weighted_mean" and model.keys() & {"pretrained", "released"}:
                found = f"found weighted_mean of a {'pretrained' if 'pretrained' in model else 'released'} model"
                yield f"{place}.pooling: {found}, expected its own; remove it"
            if is_trained(model):
                yield from _check_training(place, model, source, config)
                yield from _check_origins(place, name, model, config) if section == "encoders" else ()


def check_own_names(config: Config) -> Iterator[str]:
    """Check that what systems retrieve or re-rank with has a name that nothing else has."""
    for section, later in combinations(("lexical", *LEARNERS), 2):
        for name in config[section].keys() & config[later].keys():
            found = f"found the name {name}, which is also in {section}"
            yield f"{later}.{name}: {found}, expected a name of its own, as systems name both alike; rename it"


def _check_training(place: str, model: Config, source: str, config: Config) -> Iterator[str]:
    """Check what a training needs; `source` is the key of its examples."""
    yield from _check_examples(f"{place}.{source}", model[source], config)
    for split in TRAINING_SPLITS:
        if split not in config["splits"]:
            yield f"splits: found no split {split}, expected it for training {place}; add it"


def _check_examples(place: str, source: Config, config: Config) -> Iterator[str]:
    """Check which results a model is trained on."""
    if source.get("random", 0) > source.get("negatives", 0):
        found = f"found {source['random']}, expected at most the {source['negatives']} negatives"
        yield f"{place}.random: {found}; lower it or raise negatives"
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
    """Check what an encoder starts from, and whether it has a teacher."""
    if ENCODER_OBJECTIVES[encoder["loss"]].teacher != ("teacher" in encoder):
        loss = encoder["loss"]
        found, fix = (f"a teacher with {loss}", "remove it") if "teacher" in encoder else (loss, "add `teacher: NAME`")
        yield f"{place}: found {found}, expected a teacher with margin_mse alone; {fix}"
    if encoder["relative_margin"] is not None:
        yield from _check_margin(f"{place}.relative_margin", encoder, config["base_models"])
    if "start" in encoder:
        started = config["encoders"].get(encoder["start"], {})
        own = ("base_model",) if is_sparse(encoder) else ("base_model", "projection", "dimension")
        if "pretrained" in encoder:
            own = ("pretrained", "revision", "dimension")
        for key in ("kind", *(("queries",) if is_sparse(encoder) else ()), *own):
            there, here = started.get(key, "none"), encoder.get(key, "none")
            if started and there != here:
                yield (
                    f"{place}.start: found {encoder['start']!r} with {key} {there}, expected {here} as here; name "
                    "another encoder or change it"
                )
        chain = [name]
        while (start := config["encoders"].get(chain[-1], {}).get("start")) is not None and start not in chain:
            chain.append(start)
        if start == name:
            yield f"{place}.start: found the circle {' -> '.join([*chain, name])}, expected a first one; remove a start"


def _check_margin(place: str, encoder: Config, base_models: Config) -> Iterator[str]:
    """Check that an encoder can rank before training, and that its loss can leave passages out."""
    found, fix = f"found {encoder['relative_margin']:g}", "or set it to null"
    if not ENCODER_OBJECTIVES[encoder["loss"]].guided:
        yield f"{place}: {found} with the loss {encoder['loss']}, expected it with info_nce; change the loss {fix}"
    elif not ranks_before(encoder, base_models):
        expected = "expected weights that rank before training: a start, or a pretrained model without projection"
        yield f"{place}: {found} with an encoder of random weights, {expected}; name one {fix}"

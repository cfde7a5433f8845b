"""Recipes: whole sets of values for training an encoder or a re-ranker, which keys of the config override."""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import yaml

from cort.config.entries import LEARNERS, Config, leaves
from cort.config.experiment import Experiment
from cort.config.root import Root
from cort.runtime.sections import Section, has_default, keys_of, variant_of
from cort.training.losses import ENCODER_OBJECTIVES

RECIPES = Path(__file__).with_name("recipes.yaml")
#: the schema's own defaults
PAPER = "paper"


@functools.cache
def _documents() -> tuple[Config, Config]:
    recipes, of_random_weights = yaml.load_all(RECIPES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return recipes, of_random_weights


def load_recipes(*, random: bool = False) -> Config:
    """Read all recipes, or what differs in each for random weights; callers must not change them."""
    return _documents()[random]


def with_recipes(config: Config) -> Config:
    """Give every trained model the values of its recipe, in place; keys of the config override them.

    :param config: as written, without defaults.
    """
    for section in LEARNERS:
        for model in config.get(section, {}).values():
            variant = variant_of(keys_of(Root)[section], model)
            if variant and "recipe" in keys_of(variant):
                _apply(section, model, config, variant)
    return config


def _apply(section: str, model: Config, config: Config, variant: type[Section]) -> None:
    """Give a model the values of its recipe that suit its variant, weights and loss, and the depth of training runs."""
    name, source = model.get("recipe", PAPER), LEARNERS[section]
    # What a released model's own files define has no default.
    defaults = {key for key, field in keys_of(variant).items() if has_default(field)}
    recipe = _chosen(load_recipes()[name].get(section, {}), defaults)
    base_models = config.get("base_models", {})
    if name == "gpl" and "teacher" in model:
        recipe |= _chosen({"loss": "margin_mse", "similarity": "inner_product"}, {*keys_of(variant)})
    if "relative_margin" in recipe and not (
        ranks_before(model, base_models) and ENCODER_OBJECTIVES[(recipe | model)["loss"]].guided
    ):
        del recipe["relative_margin"]
    if last := recipe.get(source, {}).get("last_rank"):
        recipe[source]["last_rank"] = min(last, config.get("training_depth", last))
    if draws_weights(model, base_models):
        _add(model, _chosen(load_recipes(random=True).get(name, {}).get(section, {}), defaults))
    _add(model, recipe)


def draws_weights(model: Config, base_models: Config) -> bool:
    """Tell whether an encoder or re-ranker starts from random weights."""
    named = {"pretrained", "released", "start"}.isdisjoint(model)
    return named and "architecture" in base_models.get(model.get("base_model", ""), {})


def ranks_before(encoder: Config, base_models: Config) -> bool:
    """Tell whether an encoder can rank before it is trained; a new projection cannot."""
    base_model = base_models.get(encoder.get("base_model", "")) or {"pretrained": ""}
    if encoder.get("kind") == "sparse":
        # Texts of triples would need too much memory as vectors of the vocabulary's size.
        return False
    projected = "architecture" in base_model or encoder.get("projection", True)
    return not projected or not {"pretrained", "released", "start"}.isdisjoint(encoder)


def _chosen(values: Config, keys: set[str]) -> Config:
    return {key: copy.deepcopy(value) for key, value in values.items() if key in keys}


def keys_of_recipes(section: str) -> list[str]:
    """List the keys that some recipe sets for encoders or re-rankers, as paths like "training.epochs"."""
    recipes = [recipe for document in _documents() for recipe in document.values()]
    return list(dict.fromkeys(path for recipe in recipes for path, _ in leaves(recipe.get(section, {}))))


def chosen_values(experiment: Experiment) -> dict[tuple[str, str], Config]:
    """List, by model, its recipe and the values of all keys that recipes set."""
    chosen = {}
    for section, name in experiment.learners:
        model = experiment.config[section][name]
        recipe = model["recipe"]
        if recipe in load_recipes(random=True) and draws_weights(model, experiment.config["base_models"]):
            recipe += " for random weights"
        values = {path: value_at(model, path) for path in keys_of_recipes(section)}
        chosen[section, name] = {"recipe": recipe, **values}
    return chosen


def describe_training(values: Config) -> str:
    """Describe the entry of a model in `chosen_values`."""
    shown = [f"{path.removeprefix('training.')} {_text(value)}" for path, value in values.items()]
    return f"{shown[0]}: {', '.join(shown[1:])}"


def value_at(model: Config, path: str) -> Any:
    """Look up a value by its path."""
    value: Any = model
    for key in path.split("."):
        value = value.get(key)
    return value


def _text(value: object) -> str:
    if value is None:
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _add(own: Config, values: Config) -> None:
    for key, value in values.items():
        if key not in own:
            own[key] = copy.deepcopy(value)
        elif isinstance(value, dict) and isinstance(own[key], dict):
            _add(own[key], value)

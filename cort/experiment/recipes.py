"""Recipes: whole sets of values for training an encoder or a re-ranker, which keys of the config override."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path

import yaml

from cort.experiment.models import draws_weights, ranks_before, trained_models
from cort.settings.config import LEARNERS, Config, is_trained
from cort.training.settings import leaves_out

RECIPES = Path(__file__).with_name("recipes.yaml")


@functools.cache
def _documents() -> tuple[Config, Config]:
    recipes, of_random_weights = yaml.load_all(RECIPES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return recipes, of_random_weights


def load_recipes(*, random: bool = False) -> Config:
    """Read all recipes, which nobody may change, or what is different in each for random weights."""
    return _documents()[random]


def with_recipes(config: Config) -> Config:
    """Give every model that is trained the values of its recipe, in place; what the config says stays.

    The config is as it is written, without defaults.
    """
    for section in LEARNERS:
        for model in (config.get(section) or {}).values():
            if model is not None and (is_trained(model) or not model.keys() & {"pretrained", "released"}):
                _apply(section, model, config)
    return config


def _apply(section: str, model: Config, config: Config) -> None:
    """Give a model the values of its recipe that suit its weights, its loss and the training runs."""
    name, source = model.get("recipe", "paper"), LEARNERS[section]
    recipe = copy.deepcopy(load_recipes()[name].get(section, {}))
    base_models = config.get("base_models") or {}
    if "relative_margin" in recipe and not (
        ranks_before(model, base_models) and leaves_out(model.get("loss", recipe["loss"]))
    ):
        del recipe["relative_margin"]
    if last := recipe.get(source, {}).get("last_rank"):
        recipe[source]["last_rank"] = min(last, config.get("training_depth", last))
    if draws_weights(model, base_models):
        _add(model, load_recipes(random=True).get(name, {}).get(section, {}))
    _add(model, recipe)


def keys_of_recipes(section: str) -> list[str]:
    """List the keys that some recipe sets for encoders or re-rankers, as paths like "training.epochs"."""
    recipes = [recipe for document in _documents() for recipe in document.values()]
    return list(dict.fromkeys(path for recipe in recipes for path, _ in _leaves(recipe.get(section, {}))))


def chosen_values(config: Config) -> dict[tuple[str, str], Config]:
    """List by model what its recipe and the config made of the keys that recipes set, its recipe first."""
    return {
        (section, name): {"recipe": config[section][name]["recipe"] + _for_random(config, config[section][name])}
        | {path: value_at(config[section][name], path) for path in keys_of_recipes(section)}
        for section in LEARNERS
        for name in trained_models(config, section)
    }


def _for_random(config: Config, model: Config) -> str:
    special = model["recipe"] in load_recipes(random=True) and draws_weights(model, config["base_models"])
    return " for random weights" if special else ""


def describe_training(values: Config) -> str:
    """Write what `chosen_values` found for a model as text."""
    recipe, *rest = values.items()
    shown = ", ".join(f"{path.removeprefix('training.')} {_text(value)}" for path, value in rest)
    return f"recipe {recipe[1]}: {shown}"


def value_at(model: Config, path: str) -> object:
    """Look up a value by its path."""
    value: object = model
    for key in path.split("."):
        assert isinstance(value, dict)  # noqa: S101 - as the schema says
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


def _leaves(values: Config, path: str = "") -> Iterator[tuple[str, object]]:
    for key, value in values.items():
        place = f"{path}.{key}".lstrip(".")
        if isinstance(value, dict):
            yield from _leaves(value, place)
        else:
            yield place, value

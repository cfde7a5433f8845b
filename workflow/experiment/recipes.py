"""Recipes: whole sets of values for training an encoder or a re-ranker, which keys of the config override."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterator
from pathlib import Path

import yaml

from workflow.experiment.config import Config
from workflow.experiment.models import LEARNERS, is_trained, trained_models

RECIPES = Path(__file__).parents[1] / "schemas" / "recipes.yaml"


@functools.cache
def load_recipes() -> Config:
    """Read all recipes, which nobody may change."""
    recipes: Config = yaml.load(RECIPES.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)
    return recipes


def with_recipes(config: Config) -> Config:
    """Give every model that is trained the values of its recipe, in place; what the config says stays.

    The config is as it is written, without defaults.
    """
    for section in LEARNERS:
        for model in (config.get(section) or {}).values():
            if model is not None and (is_trained(model) or not model.keys() & {"pretrained", "released"}):
                _add(model, load_recipes()[model.get("recipe", "paper")].get(section, {}))
    return config


def keys_of_recipes(section: str) -> list[str]:
    """List the keys that some recipe sets for encoders or re-rankers, as paths like "training.epochs"."""
    found = [path for recipe in load_recipes().values() for path, _ in _leaves(recipe.get(section, {}))]
    return list(dict.fromkeys(found))


def chosen_values(config: Config) -> dict[tuple[str, str], Config]:
    """List by model what its recipe and the config made of the keys that recipes set, its recipe first."""
    return {
        (section, name): {"recipe": config[section][name]["recipe"]}
        | {path: value_at(config[section][name], path) for path in keys_of_recipes(section)}
        for section in LEARNERS
        for name in trained_models(config, section)
    }


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

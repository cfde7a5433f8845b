from typing import get_args

import pytest

from cort.config.learners import Encoder, Reranker
from cort.config.recipes import chosen_values, describe_training, load_recipes, with_recipes
from cort.runtime.mistakes import mistakes_in
from cort.runtime.sections import keys_of, sections_in
from tests.support.configs import GONE, built, completed

MODELS = {"encoders": Encoder, "rerankers": Reranker}
MODEL = {"pretrained": "models/minilm"}
ENCODER = {"encoders encoder recipe": "small", "encoders encoder projection": False, "base_models small": MODEL}


@pytest.mark.parametrize(
    ("name", "section"), [(name, section) for name, recipe in load_recipes().items() for section in recipe]
)
def test_keys_allow_every_value_of_every_recipe(name, section):
    model = load_recipes()[name][section] | {"base_model": "x"}
    assert mistakes_in(model, MODELS[section]) == []


def test_every_recipe_can_be_chosen():
    for section in ("encoders", "rerankers"):
        (recipe,) = [keys_of(one)["recipe"] for one in sections_in(MODELS[section]) if "recipe" in keys_of(one)][:1]
        known = [name for name, recipe in load_recipes().items() if name == "paper" or section in recipe]
        assert (list(get_args(recipe.annotation)), recipe.default) == (known, "paper")


def test_a_recipe_gives_what_the_config_does_not_say():
    config = completed(ENCODER | {"encoders encoder training epochs": 3})
    encoder, small = config["encoders"]["encoder"], load_recipes()["small"]["encoders"]
    assert (encoder["loss"], encoder["relative_margin"], encoder["training"]["patience"]) == ("info_nce", 0.05, 3)
    assert (encoder["training"]["epochs"], encoder["triples"]["last_rank"]) == (3, 20)
    assert encoder["training"]["max_gradient_norm"] == small["training"]["max_gradient_norm"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        # The tiny base model has random weights, the tiny training runs 30 results.
        ({}, {"relative_margin": None, "pooling": "mean", "training.learning_rate": 1e-3, "triples.last_rank": 30}),
        ({"training learning_rate": 0.5, "pooling": "cls"}, {"training.learning_rate": 0.5, "pooling": "cls"}),
        ({"loss": "triplet", "base_model": "released"}, {"relative_margin": None, "training.learning_rate": 2e-5}),
        ({"base_model": "released"}, {"relative_margin": None, "pooling": "cls"}),
        ({"base_model": "released", "projection": False}, {"relative_margin": 0.05}),
    ],
)
def test_a_recipe_suits_the_weights_the_loss_and_the_runs(changes, expected):
    written = {f"encoders encoder {key}": value for key, value in changes.items()}
    unwritten = {"encoders encoder pooling": GONE, "encoders encoder triples last_rank": GONE}
    unwritten["encoders encoder training learning_rate"] = GONE
    experiment = built({"encoders encoder recipe": "small", "base_models released": MODEL} | unwritten | written)
    chosen = chosen_values(experiment)["encoders", "encoder"]
    assert {key: chosen[key] for key in expected} == expected


def test_a_teacher_gives_margins_to_the_recipe_for_generated_queries():
    gpl = {"pretrained": "models/minilm", "recipe": "gpl", "training": {}}
    encoders = with_recipes({"encoders": {"alone": {**gpl}, "taught": {**gpl, "teacher": "cross"}}})["encoders"]
    assert (encoders["alone"]["loss"], encoders["alone"]["relative_margin"]) == ("info_nce", 0.05)
    assert (encoders["taught"]["loss"], encoders["taught"]["similarity"]) == ("margin_mse", "inner_product")
    assert "relative_margin" not in encoders["taught"]


def test_without_a_recipe_all_is_as_in_the_papers():
    assert completed() == completed({"encoders encoder recipe": "paper"})


def test_the_values_are_shown():
    experiment = built(ENCODER)
    text = describe_training(chosen_values(experiment)["encoders", "encoder"])
    assert text.startswith("recipe small: loss info_nce, similarity cosine, temperature 0.05, relative_margin 0.05, ")
    values = chosen_values(built({"encoders encoder recipe": "small"}))["encoders", "encoder"]
    assert describe_training(values).startswith("recipe small for random weights: loss info_nce")

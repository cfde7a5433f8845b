"""What single entries of an experiment's models say."""

from __future__ import annotations

from cort.config.entries import LEARNERS, Config, is_sparse
from cort.config.models import PretrainedBase
from cort.runtime.sections import plain

# Sections of models; `pretrained` ones become base models.
MODELS = ("encoders", "rerankers", "weighers", "expanders")


def draws_weights(model: Config, base_models: Config) -> bool:
    """Tell whether an encoder or re-ranker starts from random weights."""
    named = {"pretrained", "released", "start"}.isdisjoint(model)
    return named and "architecture" in base_models.get(model.get("base_model", ""), {})


def ranks_before(encoder: Config, base_models: Config) -> bool:
    """Tell whether an encoder can rank before it is trained; a new projection cannot."""
    base_model = base_models.get(encoder.get("base_model", "")) or {"pretrained": ""}
    if is_sparse(encoder):
        # Texts of triples would need too much memory as vectors of the vocabulary's size.
        return False
    projected = "architecture" in base_model or encoder.get("projection", True)
    return not projected or not {"pretrained", "released", "start"}.isdisjoint(encoder)


def triples_file(section: str, model: Config) -> str | None:
    """Return the file of released triples, if any, that a model is trained on."""
    file: str | None = model.get(LEARNERS[section], {}).get("file")
    return file


def released_name(section: str, name: str) -> str:
    """Return the name, as a base model, of a `pretrained` model in a section of `MODELS`."""
    return f"{section.removesuffix('s')}.{name}"


def with_base_models(config: Config) -> Config:
    """Make each `pretrained` model a base model, too, in place, and return the config."""
    for section in MODELS:
        for name, model in config[section].items():
            if "pretrained" in model:
                origin = {key: model[key] for key in ("pretrained", "revision") if key in model}
                base_model = released_name(section, name)
                model.setdefault("base_model", base_model)
                config["base_models"].setdefault(base_model, plain(PretrainedBase(**origin)))
    return config


def as_written(config: Config) -> Config:
    """Copy a config without the base models that are made of `pretrained` models."""
    made = {released_name(section, name) for section in MODELS for name in config.get(section, {})}
    sections = {
        section: {
            name: {key: value for key, value in model.items() if key != "base_model" or "pretrained" not in model}
            for name, model in config[section].items()
        }
        for section in MODELS
        if section in config
    }
    bases = {name: model for name, model in config.get("base_models", {}).items() if name not in made}
    return {**config, **sections, "base_models": bases}

"""The models in an experiment's config, and which systems use them."""

from __future__ import annotations

from collections.abc import Iterable

from cort.experiment.config import splits_of, tuned_systems, with_parts
from cort.settings.config import LEARNERS, TRAINING_SPLITS, Config, any_of, is_sparse, is_trained, sources
from cort.systems.base import System
from cort.systems.registry import all_systems, system_of

# Sections of models; `pretrained` ones become base models.
MODELS = ("encoders", "rerankers", "weighers", "expanders")


def used_models(config: Config, section: str) -> list[str]:
    """List the encoders or re-rankers that systems, or the models they use, need, in config order."""
    used = {model for system in all_systems(config).values() for model in models_of(config, system)}
    return [name for name in config[section] if (section, name) in used]


def models_of(config: Config, system: System) -> list[tuple[str, str]]:
    """List the models that a run needs, as (section, name): the system's own, their starts and their teachers."""
    models: dict[tuple[str, str], None] = {}

    def visit(section: str, name: str | None) -> None:
        if name is not None and name in config[section] and (section, name) not in models:
            models[section, name] = None
            model = config[section][name]
            visit("encoders", model.get("start"))
            visit("rerankers", model.get("teacher"))

    for section, name in system.models():
        visit(section, name)
    visit("rerankers", filter_of(config, system))
    return list(models)


def filter_of(config: Config, system: System) -> str | None:
    """Return the re-ranker, if any, that filters the predicted queries in the index that a system searches."""
    index = config["lexical"].get(system.lexical_index(), {})
    expander = config["expanders"].get(index.get("expand"), {})
    name: str | None = expander.get("filter", {}).get("reranker")
    return name


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


def on_released_triples(config: Config, section: str) -> str:
    """Return a regular expression for the names of a section's models that are trained on released triples."""
    return any_of(name for name, model in config[section].items() if triples_file(section, model))


def released_name(section: str, name: str) -> str:
    """Return the name, as a base model, of a `pretrained` model in a section of `MODELS`."""
    return f"{section.removesuffix('s')}.{name}"


def released_model(config: Config, base_model: str) -> tuple[str, str] | None:
    """Return section and name of the `pretrained` model behind a base model, if there is one."""
    models = ((section, name, model) for section in MODELS for name, model in config[section].items())
    released = ((section, name) for section, name, model in models if "pretrained" in model)
    return next((model for model in released if released_name(*model) == base_model), None)


def pretrained_pattern(config: Config, section: str) -> str:
    """Return a regular expression for the names of a section's `pretrained` models."""
    return any_of(name for name, model in config[section].items() if "pretrained" in model)


def place_of_base_model(config: Config, name: str) -> str:
    """Return where the config defines a base model."""
    return ".".join(released_model(config, name) or ("base_models", name))


def trained_models(config: Config, section: str) -> list[str]:
    """List the used models that are trained here, not only loaded."""
    return [name for name in used_models(config, section) if is_trained(config[section][name])]


def encoders_pattern(config: Config, trained: bool) -> str:
    """Return a regular expression for the names of all encoders that are, or are not, trained here."""
    return any_of(name for name, encoder in config["encoders"].items() if is_trained(encoder) == trained)


def trainings(config: Config) -> list[tuple[str, str]]:
    """List all trainings, by section and name of their models."""
    return [(section, name) for section in LEARNERS for name in trained_models(config, section)]


def indexes_of(config: Config, split: str) -> list[tuple[str, str]]:
    """List the indexes that systems search on a split, as (encoder or re-ranker, kind of index)."""
    return list(
        dict.fromkeys(
            index
            for name, system in all_systems(config).items()
            if (index := system.approximate_index()) and split in splits_of(config, name)
        )
    )


def teachers(config: Config) -> list[str]:
    """List the systems whose runs of the training queries models are trained on, and all that they are made from."""
    learnt_from = (
        system
        for section, source in LEARNERS.items()
        for model in trained_models(config, section)
        for system in sources(config[section][model][source])
    )
    return with_parts(config, learnt_from)


def validated(config: Config) -> list[str]:
    """List the systems that need runs of the validation queries, and all that they are made from."""
    return with_parts(config, [*teachers(config), *tuned_systems(config)])


def reranked_by(config: Config, reranker: str, split: str) -> list[str]:
    """List the systems whose candidates a re-ranker scores on a split, each once, in config order.

    On `train` and `validation`, these are only those that models are trained on or, on `validation`, weights are tuned
    on: others may depend on the very models.
    """
    if split in TRAINING_SPLITS:
        wanted: Iterable[str] = validated(config) if split == "validation" else teachers(config)
    else:
        wanted = config["systems"]
    systems = {name: system_of(config, name) for name in config["systems"] if name in wanted}
    return list(
        dict.fromkeys(
            part
            for name, system in systems.items()
            if system.reranker() == reranker and (split in TRAINING_SPLITS or split in splits_of(config, name))
            for part in system.parts()
        )
    )

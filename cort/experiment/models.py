"""What single entries of an experiment's models say."""

from __future__ import annotations

from cort.settings.config import LEARNERS, Config, is_sparse

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

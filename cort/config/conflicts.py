"""Find settings that exclude each other. This needs the config as written, without defaults."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config.entries import Config
from cort.config.model_facts import MODELS, released_name


def check_conflicts(config: Config) -> Iterator[str]:
    """Yield a line for each setting that another one excludes."""
    for section in MODELS:
        for name, model in config.get(section, {}).items():
            place = f"{section}.{name}"
            if "pretrained" in model and (taken := released_name(section, name)) in config.get("base_models", {}):
                found = f"found pretrained and the base model {taken}, whose name it needs"
                yield f"{place}: {found}, expected no such base model; rename that one"
            for prompt in ("query_prompt", "passage_prompt"):
                if {prompt, f"{prompt}_name"} <= model.keys():
                    yield f"{place}: found {prompt} and {prompt}_name, expected one of them; remove one"
            if "pos_weight" in model and model.get("loss") == "softmax":
                found = "found pos_weight with the loss softmax"
                yield f"{place}.pos_weight: {found}, expected it with pointwise; remove it"

"""The modules of a released encoder, as sentence-transformers saves them: ``modules.json`` and the files it names.

Each function reads one of them, or refuses by its name what this project's encoders cannot be.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from cort.formats.artifacts import Node, read_json
from cort.models.hub import Settings, check_weights
from cort.models.loading import LONGEST, check_numbers, check_tensors
from cort.models.settings import FIX
from cort.system.errors import input_error, shorten

log = logging.getLogger(__name__)

INDEX, PROMPTS = "modules.json", "config_sentence_transformers.json"
MODULES = ("Transformer", "Pooling", "Dense", "Normalize")
ORDER = re.compile(r"Transformer Pooling( Dense)*( Normalize)?")
POOLINGS = {"mean": "mean", "cls": "cls", "lasttoken": "last"}
# How older files say it: a truth value each.
POOLING_KEYS = {
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_cls_token": "cls",
    "pooling_mode_lasttoken": "lasttoken",
}
SIMILARITIES = {"cosine": "cosine", "dot": "inner_product", "dot_product": "inner_product"}
ACTIVATIONS = {"Tanh": "tanh", "Identity": "identity"}
# Names of prompts as sentence-transformers looks for them, in this order.
PROMPT_NAMES = {"query": ("query",), "passage": ("document", "passage", "corpus")}
ELSEWHERE = "use another model"


@dataclass(frozen=True)
class Files:
    """A model's modules in their order, each with its folder; `transformer` has weights and tokenizer."""

    folder: Path
    modules: list[tuple[str, Path]]

    @property
    def transformer(self) -> Path:
        """Folder of the transformer."""
        return next(path for kind, path in self.modules if kind == "Transformer")

    def of(self, kind: str) -> list[Path]:
        """Folders of the modules of a kind."""
        return [path for name, path in self.modules if name == kind]


@dataclass(frozen=True)
class Asked:
    """What the user wants otherwise than the model's files say; None leaves it."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    query_prompt_name: str | None = None
    passage_prompt_name: str | None = None


def read_files(folder: Path, order: re.Pattern[str]) -> Files:
    """Read which modules a model has, those of plain transformers being the transformer alone.

    :param order: the kinds that can be read, as words.
    """
    index = folder / INDEX
    if not index.is_file():
        log.info("%s: no %s, so a model of transformers alone", folder, INDEX)
        files = Files(folder, [("Transformer", folder)])
    else:
        files = Files(folder, [_module(folder, node) for node in read_json(index, FIX).items()])
        kinds = " ".join(kind for kind, _ in files.modules)
        if not order.fullmatch(kinds):
            expected = (
                "Transformer, Pooling, then any Dense, then Normalize or not" if order is ORDER else "Transformer"
            )
            raise input_error(index, f"the modules {kinds.replace(' ', ', ') or '(none)'}", expected, ELSEWHERE)
    check_weights(files.transformer)
    for name in ("config.json", "tokenizer_config.json"):
        if code := Settings(files.transformer / name).get("auto_map"):
            found = f"code of its own, auto_map {shorten(str(code))}"
            raise input_error(files.transformer / name, found, "a model of transformers itself", ELSEWHERE)
    return files


def _module(folder: Path, node: Node) -> tuple[str, Path]:
    kind, path = (node[key].read(str) for key in ("type", "path"))
    package, _, name = kind.rpartition(".")
    if package.partition(".")[0] != "sentence_transformers":
        raise input_error(node.source, f"the module {shorten(kind)}, code of its own", ", ".join(MODULES), ELSEWHERE)
    if name not in MODULES:
        raise input_error(node.source, f"the module {shorten(kind)}", ", ".join(MODULES), ELSEWHERE)
    own = folder / path
    if not own.resolve().is_relative_to(folder.resolve()):
        raise input_error(node.source, f"the module {name} in {shorten(path)}", "a folder beside it", ELSEWHERE)
    # What normalises has nothing to save.
    needed = {"Transformer": "config.json", "Pooling": "config.json", "Dense": "config.json"}.get(name)
    if needed and not (own / needed).is_file():
        raise input_error(own, f"no {needed} of the module {name}", f"what {INDEX} names", FIX)
    return name, own


def pooling_of(files: Files) -> Any:
    """Read how states become one vector, as `EncoderSettings` names it."""
    if not files.of("Pooling"):
        log.info("%s: no Pooling; the mean of all tokens is taken", files.folder)
        return "mean"
    settings = Settings(files.of("Pooling")[0] / "config.json")
    found = settings.get("pooling_mode")
    if found is None:
        keys = [key for key in settings.values if key.startswith("pooling_mode_")]
        named = [key for key in keys if settings.get(key, bool)]
        found = [POOLING_KEYS.get(key, key.removeprefix("pooling_mode_")) for key in named]
    modes = [found] if isinstance(found, str) else found
    if not isinstance(modes, list) or len(modes) != 1 or modes[0] not in POOLINGS:
        said = ", ".join(map(str, modes)) if isinstance(modes, list) else str(modes)
        raise input_error(settings.path, f"the Pooling {shorten(said)}", f"one of {', '.join(POOLINGS)}", ELSEWHERE)
    return POOLINGS[modes[0]]


def similarity_of(files: Files) -> Any:
    """Read by what vectors are compared, as `EncoderSettings` names it."""
    settings = Settings(files.folder / PROMPTS)
    name, unit = settings.get("similarity_fn_name", str) or "cosine", bool(files.of("Normalize"))
    # Vectors of one length have the same order by all of them but manhattan.
    if unit and name in (*SIMILARITIES, "euclidean"):
        return "cosine"
    if name not in SIMILARITIES:
        raise input_error(settings.path, f"similarity_fn_name {shorten(name)}", "cosine or dot", ELSEWHERE)
    return SIMILARITIES[name]


def prompts_of(files: Files, asked: Asked) -> dict[str, str]:
    """Choose the prompts of queries and passages: by name, or as sentence-transformers does."""
    settings = Settings(files.folder / PROMPTS)
    known: dict[str, str] = settings.get("prompts", dict[str, str]) or {}
    default = settings.get("default_prompt_name", str)
    listed = ", ".join(known) or "(none)"
    if default is not None and default not in known:
        raise input_error(settings.path, f"default_prompt_name {shorten(default)}", f"one of {listed}", ELSEWHERE)
    found = {}
    for kind, names in PROMPT_NAMES.items():
        if (wanted := getattr(asked, f"{kind}_prompt_name")) is not None:
            if wanted not in known:
                place = f"--{kind}-prompt-name"
                raise input_error(place, shorten(wanted), f"a prompt of {settings.path}: {listed}", "name one of these")
            names = (wanted,)
        found[f"{kind}_prompt"] = next((known[name] for name in names if known.get(name)), "")
    if not any(found.values()) and any(known.values()):
        log.warning("%s: none of its prompts (%s) is for queries or passages; none is used", settings.path, listed)
    return found


def check_pooled_prompts(files: Files, prompts: Mapping[str, Any]) -> None:
    """Refuse prompts whose tokens are not to be pooled."""
    used = any(prompts.get(f"{kind}_prompt") for kind in PROMPT_NAMES)
    for folder in files.of("Pooling"):
        settings = Settings(folder / "config.json")
        if used and settings.get("include_prompt", bool) is False:
            raise input_error(settings.path, "a Pooling without the prompt", "include_prompt true", ELSEWHERE)


def projection_of(files: Files, width: int) -> tuple[nn.Linear | None, Any]:
    """Multiply the Dense modules to one, which only the last may have an activation after."""
    weight, bias, activation = (
        torch.eye(width, dtype=torch.float64),
        torch.zeros(width, dtype=torch.float64),
        "identity",
    )
    for folder in files.of("Dense"):
        if activation != "identity":
            raise input_error(folder, "a Dense after one with an activation", "one of them", ELSEWHERE)
        settings = Settings(folder / "config.json")
        activation = _activation(settings)
        found = _dense(folder, settings, len(weight))
        weight = found["weight"] @ weight
        bias = found["weight"] @ bias + found.get("bias", 0)
    if not files.of("Dense"):
        return None, "tanh"
    linear = nn.Linear(width, len(weight))
    linear.load_state_dict({"weight": weight.float(), "bias": bias.float()})
    # Larger numbers have become infinite.
    check_numbers(files.of("Dense")[-1], linear.state_dict(), FIX)
    return linear, activation


def _activation(settings: Settings) -> str:
    features = {settings.get(f"module_{side}_name", str) or "sentence_embedding" for side in ("input", "output")}
    if settings.get("use_residual", bool) or features != {"sentence_embedding"}:
        raise input_error(settings.path, "a Dense beside the embedding", "one of the embedding alone", ELSEWHERE)
    written = "activation_function" in settings.values
    name: str = settings.node["activation_function"].read(str) if written else "torch.nn.modules.activation.Tanh"
    short = name.rpartition(".")[2]
    if not name.startswith("torch.nn.") or short not in ACTIVATIONS:
        raise input_error(settings.path, f"a Dense with {shorten(name)}", " or ".join(ACTIVATIONS), ELSEWHERE)
    return ACTIVATIONS[short]


def _dense(folder: Path, settings: Settings, width: int) -> dict[str, Tensor]:
    path = folder / "model.safetensors"
    rows, columns = (settings.node[f"{side}_features"].within(int, 1, LONGEST) for side in ("out", "in"))
    if columns != width:
        raise input_error(settings.path, f"in_features {columns}", f"{width}, as what comes before it gives", FIX)
    try:
        tensors = load_file(path)
    except (OSError, SafetensorError) as error:
        fix = FIX if path.is_file() else "convert it with save_pretrained; pickles are refused"
        raise input_error(folder, f"no safetensors weights of the module Dense ({error})", path.name, fix) from error
    linear = nn.Linear(columns, rows, bias=settings.get("bias", bool) is not False, device="meta")
    check_tensors(path, tensors, {f"linear.{name}": value for name, value in linear.state_dict().items()}, FIX)
    return {name.removeprefix("linear."): value.double() for name, value in tensors.items()}

"""Low-rank adapters of linear layers (LoRA; Hu et al., 2022) by peft: trained here, or merged from a released folder.

Models are always saved without adapters: each product of two small matrices is added to the weights it adapts.
"""

from __future__ import annotations

import copy
import shutil
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file
from torch import nn

from cort.models.layout import ADAPTER, Settings, refusing
from cort.models.loading import load_transformer
from cort.models.transformer import heads_of
from cort.runtime.errors import input_error, shorten

WEIGHTS = "adapter_model.safetensors"
# The product counts twice, as is common.
ALPHA_PER_RANK = 2
#: what sizes and places an adapter; other settings describe how it was trained, or must be off
READ = {
    *("r", "lora_alpha", "target_modules", "exclude_modules", "modules_to_save", "layers_to_transform", "bias"),
    *("layers_pattern", "rank_pattern", "alpha_pattern", "fan_in_fan_out", "use_rslora", "use_dora", "lora_bias"),
}
IGNORED = {
    *("auto_mapping", "base_model_name_or_path", "inference_mode", "init_lora_weights", "lora_dropout", "peft_type"),
    *("peft_version", "revision", "task_type", "megatron_core", "qalora_group_size", "ensure_weight_tying"),
}
#: tasks of peft -> classes of transformers that an adapter was trained on
CLASSES = {None: "AutoModel", "FEATURE_EXTRACTION": "AutoModel", "SEQ_CLS": "AutoModelForSequenceClassification"}


def load_peft() -> Any:
    """Import peft, which only this module needs.

    :raises InputError: if it is not installed.
    """
    try:
        import peft
    except ImportError as error:
        raise input_error("peft", "no such package", "it for adapters (LoRA)", "`pip install peft`") from error
    return peft


def adapt(model: nn.Module, rank: int, seed: int) -> None:
    """Give each linear layer of a model's transformers an adapter; only these and the layers after them are trained.

    :raises InputError: for a model without such layers.
    """
    peft = load_peft()
    torch.manual_seed(seed)
    adapted = 0
    # Kernels over words have none.
    modules: list[Any] = getattr(model, "transformers", list)()
    for transformer in [module.model for module in modules]:
        heads = nn.ModuleList(_heads_of(transformer))
        others = {*heads.modules()}
        parts = transformer.named_modules()
        if targets := [name for name, part in parts if isinstance(part, nn.Linear) and part not in others]:
            config = peft.LoraConfig(r=rank, lora_alpha=ALPHA_PER_RANK * rank, target_modules=targets)
            peft.inject_adapter_in_model(config, transformer)
            heads.requires_grad_(True)
            adapted += len(targets)
    if not adapted:
        raise input_error("--lora-rank", rank, "none without linear layers of a transformer", "leave it out")


def _heads_of(transformer: Any) -> list[nn.Module]:
    """List the layers after those that every text goes through: a pooler and a head, which may be new."""
    base = transformer.base_model
    pooler = getattr(base, "pooler", None)
    return ([] if base is transformer else heads_of(transformer)) + ([] if pooler is None else [pooler])


def merged(model: Any) -> Any:
    """Copy a model, with its adapters added to the weights."""
    from peft.tuners.tuners_utils import BaseTunerLayer

    model = copy.deepcopy(model)
    for name, layer in list(model.named_modules()):
        if isinstance(layer, BaseTunerLayer):
            layer.merge()
            parent, _, own = name.rpartition(".")
            setattr(model.get_submodule(parent), own, layer.get_base_layer())
    return model


def base_of(folder: Path) -> tuple[str, str | None]:
    """Return name and revision of the model that an adapter belongs to."""
    settings = Settings(folder / ADAPTER)
    name = settings.get("base_model_name_or_path", str)
    if not name:
        raise input_error(settings.path, "no base_model_name_or_path", "the model it was trained on", "set it there")
    return name, settings.get("revision", str)


def merge_adapter(base: Path, adapter: Path, output: Path) -> None:
    """Write a folder with the files of a model and of an adapter, which replace the model's, and the merged weights."""
    peft, settings = load_peft(), Settings(adapter / ADAPTER)
    config = _config(peft, settings)
    path = adapter / WEIGHTS
    if not path.is_file():
        raise input_error(adapter, "no safetensors weights of the adapter", WEIGHTS, "save it anew with peft")
    with refusing(path, "unreadable bytes", "a complete safetensors file"):
        tensors = load_file(path)
    kind, more = CLASSES[settings.get("task_type", str)], dict[str, Any]()
    if kind != "AutoModel":
        last = [name for name in tensors if name.endswith(("classifier.weight", "score.weight", "out_proj.weight"))]
        if not last:
            raise input_error(path, "no tensor of a classifier", "a head for its labels", "use another model")
        more["num_labels"] = len(tensors[last[-1]])
    model = load_transformer(base, kind, released=True, **more)
    with refusing(adapter, "an adapter that does not fit its base model", f"one of {base}"):
        adapted = peft.get_peft_model(model, config)
        report = peft.set_peft_model_state_dict(adapted, tensors)
        missing = [name for name in report.missing_keys if "lora_" in name or "modules_to_save" in name]
        for names, problem in ((missing, "no tensor"), (report.unexpected_keys, "the unknown tensor")):
            if names:
                raise input_error(path, f"{problem} {shorten(min(names))}", "those of its config", "use another model")
        model = adapted.merge_and_unload(safe_merge=True)
    for source in (base, adapter):
        ignored = shutil.ignore_patterns("adapter_*", "*.safetensors*", "*.bin", ".*")
        shutil.copytree(source, output, ignore=ignored, dirs_exist_ok=True)
    model.save_pretrained(output)


def _config(peft: Any, settings: Settings) -> Any:
    """Read the config of an adapter; refuse other kinds than LoRA, and what would need more than two matrices."""
    kind, task = settings.get("peft_type", str), settings.get("task_type")
    if kind != "LORA":
        raise input_error(settings.path, f"the peft_type {shorten(kind)}", "LORA", "merge it with peft first")
    if task not in CLASSES:
        expected = "FEATURE_EXTRACTION or SEQ_CLS"
        raise input_error(settings.path, f"the task_type {shorten(task)}", expected, "merge it with peft first")
    for name in sorted(settings.values.keys() - READ - IGNORED):
        if settings.values[name]:
            found = f"{shorten(name)[1:-1]} {shorten(settings.values[name])}"
            raise input_error(settings.path, found, "plain LoRA", "merge it with peft first")
    with refusing(settings.path, "settings that peft cannot read", "those of a LoRA adapter"):
        return peft.LoraConfig(**{name: value for name, value in settings.values.items() if name in READ})

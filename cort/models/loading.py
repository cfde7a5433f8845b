"""Load a model folder: exactly the weights that its config implies; or a one-line error."""

from __future__ import annotations

import re
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from cort.models.layout import Settings, check_model, refusing
from cort.models.settings import FIX
from cort.runtime.errors import COMPLAINT_LENGTH, InputError, input_error, shorten
from cort.runtime.imports import uncollected

#: transformers' classes of encoder-decoders and of models with labels
SEQ2SEQ = "AutoModelForSeq2SeqLM"
#: keys of an encoder-decoder's config: ids of the tokens that begin, end and pad what it generates
NEEDED = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
# Encoder halves of encoder-decoders.
ENCODERS = ("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel")
# Arguments of transformers: no code of others, and weights that cannot contain any.
TRUSTED = {"trust_remote_code": False, "local_files_only": True}
EVERYTHING = TRUSTED | {"use_safetensors": True, "dtype": torch.float32}
OTHER = "name another model"
#: what to do about pickled weights
CONVERT = "convert it with save_pretrained; pickles are refused"
# Buffers that older versions of transformers saved and later ones recompute.
BUFFER = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")


def load_transformer(
    source: str | Path,
    kind: str = "AutoModel",
    *,
    trained: bool = False,
    released: bool = False,
    **options: Any,
) -> nn.Module:
    """Load a transformer: safetensors only, no remote code, single precision.

    Weights must be those that the config implies. In a model to start training from, a head (everything outside the
    transformer, and the pooler) may be missing, and is then drawn at random, or unused.

    :param kind: class of transformers; `options` are its arguments, and settings that override those of the config.
    :param trained: whether no head may be missing or unused, except for a pooler, which an encoder does not need, and
        a head that the config names.
    :param released: whether to accept decoders, and the encoder halves of encoder-decoders, too.
    """
    with uncollected():
        import transformers

    with refusing(source, "no complete model", "a transformers folder with config.json and model.safetensors"):
        if Path(source).is_dir():
            _check_files(Path(source))
        settings = {name: value for name, value in options.items() if name not in ("add_pooling_layer", "device_map")}
        config = transformers.AutoConfig.from_pretrained(str(source), **(TRUSTED | settings))
        kind = check_kind(source, config, kind, released)
        for name in NEEDED if kind == SEQ2SEQ else ():
            if getattr(config, name, None) is None:
                expected = "the token that begins, ends or pads what a decoder generates"
                raise input_error(source, f"no {name} in config.json", expected, "set it there")
        with uncollected():  # as it imports the class of the model
            # Its own report, which is also logged, says less clearly what is wrong.
            transformers.logging.set_verbosity_error()
            transformers.logging.disable_progress_bar()
            how = EVERYTHING | without_flash(source) | options
            how |= {"ignore_mismatched_sizes": True, "output_loading_info": True}
            model, report = getattr(transformers, kind).from_pretrained(str(source), **how)
        known = trained and not (kind == "AutoModel" and _names_head(config))
        _check_report(source, model, report, known, has_own_head=trained and kind != "AutoModel")
        return typing.cast(nn.Module, model)


def check_transformer(source: str | Path, kind: str = "AutoModel", **options: Any) -> None:
    """Refuse what `load_transformer` would, without reading weights, or memory for them."""
    load_transformer(source, kind, **options, device_map="meta")


def _check_files(folder: Path) -> None:
    """Refuse a folder without settings, or with pickled or quantized weights, code of others, or weights elsewhere."""
    import transformers

    check_model(folder, "config.json")
    if not any(folder.glob("*.safetensors")):
        raise input_error(folder, "no safetensors weights", "model.safetensors", CONVERT)
    config = Settings(folder / "config.json")
    if (code := config.get("auto_map")) and config.get("model_type") not in transformers.CONFIG_MAPPING:
        raise input_error(config.path, f"custom code, auto_map {shorten(str(code))}", "a class of transformers", OTHER)
    if config.get("quantization_config") is not None:
        found, fix = "quantized weights", "use the model before quantization"
        raise input_error(config.path, found, "floating point", fix)
    files = Settings(folder / "model.safetensors.index.json").get("weight_map", dict[str, str]) or {}
    for name in files.values():
        if Path(name).name != name:
            raise input_error(folder, f"weights in {shorten(name)}", "files in the same folder", FIX)


def without_flash(folder: str | Path, arguments: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Replace flash attention, which few machines have and none in single precision, by torch's own.

    :param arguments: of the transformer, besides its config.
    """
    settings = (Settings(Path(folder) / "config.json").values, arguments or {})
    named = [part.get(name) for part in settings for name in ("attn_implementation", "_attn_implementation")]
    return {"attn_implementation": "sdpa"} if any("flash" in str(name) for name in named) else {}


def _names_head(config: Any) -> bool:
    """Tell whether the config says that the weights include a head, which an encoder leaves out."""
    import transformers

    names = config.architectures or ()
    return any(re.search("For|Head", name) and hasattr(transformers, name) for name in names)


def check_kind(source: str | Path, config: Any, kind: str, released: bool = False) -> str:
    """Refuse a config that no model of a class of transformers reads texts with, in both directions unless `released`.

    :returns: the class; of an encoder-decoder, that of its encoder.
    """
    import transformers

    of, found, expected = type(config), kind_of(config), "an encoder of text like BERT"
    if kind == SEQ2SEQ:
        expected = "an encoder-decoder like T5"
        if config.is_encoder_decoder and of in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            return kind
    elif found == "an encoder":
        return kind
    elif released:
        half = next((name for name in ENCODERS if getattr(transformers, name).config_class is of), None)
        if half and kind == "AutoModel":
            return half
        if not config.is_encoder_decoder and of in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
            return kind
    raise input_error(source, f"a {config.model_type}, {found}", expected, OTHER)


def kind_of(config: Any) -> str:
    """Name the kind of a model according to its config."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    fills = type(config) in MODEL_FOR_MASKED_LM_MAPPING
    if config.is_encoder_decoder:
        return "an encoder-decoder"
    if getattr(config, "is_decoder", False) or (type(config) in MODEL_FOR_CAUSAL_LM_MAPPING and not fills):
        return "a decoder"
    return "an encoder" if fills else "of another kind"


def _check_report(source: str | Path, model: Any, report: Mapping[str, Any], trained: bool, has_own_head: bool) -> None:
    """Refuse problems with weights that transformers reports, except for heads that may be missing or unused."""
    prefix, parts = f"{model.base_model_prefix}.", {name for name, _ in model.base_model.named_children()} - {"pooler"}

    def is_head(name: str) -> bool:
        return name.removeprefix(prefix).partition(".")[0] not in parts

    missing = [name for name in report["missing_keys"] if has_own_head or not is_head(name)]
    unknown = [name for name in report["unexpected_keys"] if trained or not is_head(name)]
    unknown = [name for name in unknown if not BUFFER.search(name)]
    _check_names(source, missing, unknown, "those of its config.json", FIX)
    for name, shape, wanted in sorted(report["mismatched_keys"]):
        if has_own_head or not is_head(name):
            raise _other_shape(source, name, shape, wanted, FIX)
    if report["error_msgs"]:
        raise ValueError(report["error_msgs"][0])


def _check_names(
    source: str | Path, missing: Collection[str], unknown: Collection[str], expected: str, fix: str
) -> None:
    """Refuse missing and unknown tensors; the error names the first."""
    for names, problem in ((missing, "no tensor"), (unknown, "the unknown tensor")):
        if names:
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            raise input_error(source, f"{problem} {shorten(min(names), COMPLAINT_LENGTH)}{others}", expected, fix)


def check_tensors(source: str | Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], fix: str) -> None:
    """Refuse tensors of a file whose names or shapes differ from the expected ones."""
    expected = f"the {len(wanted)} tensors of this model"
    _check_names(source, wanted.keys() - tensors, tensors.keys() - wanted, expected, fix)
    for name, value in tensors.items():
        if value.shape != wanted[name].shape:
            raise _other_shape(source, name, value.shape, wanted[name].shape, fix)


def _other_shape(source: str | Path, name: str, found: Iterable[int], wanted: Iterable[int], fix: str) -> InputError:
    return input_error(source, f"{shorten(name)[1:-1]} of shape {tuple(found)}", str(tuple(wanted)), fix)

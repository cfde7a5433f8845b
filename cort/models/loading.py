"""Loading a model folder: every weight that its config names and no other, all finite, or one line that says which."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file
from torch import Tensor, nn

from cort.formats.artifacts import Node, read_json
from cort.models.settings import FIX, EncoderSettings, PairSettings
from cort.system.errors import InputError, input_error, shorten
from cort.system.imports import uncollected
from cort.system.interruption import Interrupted

Settings = TypeVar("Settings", EncoderSettings, PairSettings)

# transformers' class of models that read a text and write another.
SEQ2SEQ = "AutoModelForSeq2SeqLM"
OTHER = "name another model"
COMPLAINT_LENGTH = 200
# What a config counts: parts, each of which is built before any weight is read, and numbers of all kinds.
PARTS, MOST_PARTS, MOST = re.compile("layer|label|group|expert"), 1_000, 10_000_000
# Saved by older versions of transformers, counted anew by later ones.
BUFFER = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
POSITIVE = re.compile("max_position_embeddings|(.*_)?eps|num_.*heads|rope_theta")
# Types of weights; smaller floating-point numbers mean nothing without their scales.
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# What a setting of ours counts: tokens, or numbers of a vector.
LONGEST = 100_000


def load_transformer(
    source: str | Path,
    kind: str = "AutoModel",
    *,
    trained: bool = False,
    decoder: bool = False,
    fix: str = FIX,
    **options: Any,
) -> nn.Module:
    """Load an encoder: safetensors only, no remote code, single precision.

    Its weights are those its config names. Of a model to start from, a head may be missing, to be drawn, or left over:
    all that is outside of the transformer, and the pooler.

    :param kind: transformers' class; `options` are its own, and settings of the model to replace.
    :param trained: whether the weights are the model's alone, but for a pooler that an encoder has no use for.
    :param decoder: whether it may be one, whose last token alone has seen the whole text.
    """
    with uncollected():
        import transformers

    options = {"trust_remote_code": False, "local_files_only": True} | options
    everything = {"use_safetensors": True, "dtype": torch.float32} | options
    try:
        if Path(source).is_dir():
            check_config(Path(source) / "config.json", read_json(Path(source) / "config.json", FIX).of(dict), FIX)
            _check_types(Path(source))
        config = transformers.AutoConfig.from_pretrained(str(source), **options)
        if kind == SEQ2SEQ:
            check_seq2seq(source, config, OTHER)
        else:
            check_encoder(source, config, OTHER, decoder)
        _check_made_as(source, config)
        load = getattr(transformers, kind).from_pretrained
        # Without memory for weights: those that are missing or of another shape would be drawn.
        planned = {"device_map": "meta", "ignore_mismatched_sizes": True, "output_loading_info": True}
        with uncollected():  # as it imports the class of the model
            model, found = load(str(source), **everything, **planned)
        _check_cover(source, model, found, kind, trained)
        model = load(str(source), **everything)
    except (InputError, Interrupted):
        raise
    except Exception as error:  # transformers, its config classes and safetensors have errors of many kinds
        reason = shorten(str(error).strip() or type(error).__name__, COMPLAINT_LENGTH)
        expected = "a transformers folder with config.json and model.safetensors"
        raise input_error(source, f"no whole model ({reason})", expected, fix) from error
    check_numbers(source, model.state_dict(), FIX)
    return typing.cast(nn.Module, model)


def _check_types(folder: Path) -> None:
    """Refuse weights in other types than floating point, which would be taken for such; ids of positions are none."""
    for path in _weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                kind = file.get_slice(name).get_dtype()
                if not name.endswith("_ids") and kind not in FLOATS:
                    raise input_error(folder, f"{shorten(name)} of the type {kind}", "floating point", FIX)


def _weight_files(folder: Path) -> list[Path]:
    """List the files that transformers reads weights from: one, or those of an index."""
    whole, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if whole.is_file() or not index.is_file():
        return [whole] if whole.is_file() else []
    files = read_json(index, FIX)["weight_map"]
    names = set(files.read(dict[str, str]).values())
    for name in names:
        if Path(name).name != name:
            raise files.complain(shorten(name), "files beside it")
    return [folder / name for name in sorted(names)]


def check_config(source: str | Path, settings: Mapping[str, Any], fix: str) -> None:
    """Refuse numbers of an architecture that nothing can be built with."""
    for name, value in settings.items():
        most = MOST_PARTS if PARTS.search(name) else MOST
        wrong = isinstance(value, int) and abs(value) > most
        if wrong or (isinstance(value, float) and not math.isfinite(value)):
            raise input_error(source, f"{name} {shorten(str(value)).strip(chr(39))}", f"a number up to {most:,}", fix)
        if name == "quantization_config" and value is not None:
            raise input_error(
                source, "quantized weights", "those in floating point", "use the model before quantization"
            )
        # Texts of some lengths could not be encoded; the result would be the same.
        if name == "chunk_size_feed_forward" and value:
            raise input_error(source, f"{name} {value}", "0", fix)
        if POSITIVE.fullmatch(name) and isinstance(value, int | float) and value <= 0:
            raise input_error(source, f"{name} {value}", "more than 0", fix)


def check_encoder(source: str | Path, config: Any, fix: str, decoder: bool = False) -> None:
    """Refuse models whose texts are not read in both directions: those without a masked language model.

    :param decoder: whether a decoder is as good.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if decoder and not config.is_encoder_decoder and type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    causal = getattr(config, "is_decoder", False)
    if config.is_encoder_decoder or causal or type(config) not in MODEL_FOR_MASKED_LM_MAPPING:
        raise input_error(source, f"a {config.model_type}, {_kind_of(config)}", "an encoder of text like BERT", fix)


def check_seq2seq(source: str | Path, config: Any, fix: str) -> None:
    """Refuse models that do not read one text and write another."""
    from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    if not config.is_encoder_decoder or type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        raise input_error(source, f"a {config.model_type}, {_kind_of(config)}", "an encoder-decoder like T5", fix)


def _kind_of(config: Any) -> str:
    """Say what a model is, by its config."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, MODEL_FOR_MASKED_LM_MAPPING

    if config.is_encoder_decoder:
        return "an encoder-decoder"
    if getattr(config, "is_decoder", False):
        return "a decoder"
    if type(config) in MODEL_FOR_MASKED_LM_MAPPING:
        return "an encoder"
    return "a decoder" if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING else "of another kind"


def _check_made_as(source: str | Path, config: Any) -> None:
    import transformers

    for name in config.architectures or ():
        made_as = getattr(getattr(transformers, str(name), None), "config_class", None)
        if made_as is not None and made_as.model_type != config.model_type:
            found = f"the model_type {config.model_type} of a {shorten(str(name))}"
            raise input_error(source, found, made_as.model_type, FIX)


def _check_cover(source: str | Path, model: Any, found: Mapping[str, Any], kind: str, trained: bool) -> None:
    prefix, parts = f"{model.base_model_prefix}.", {name for name, _ in model.base_model.named_children()} - {"pooler"}

    def is_head(name: str) -> bool:
        return name.removeprefix(prefix).partition(".")[0] not in parts

    has_own_head = trained and kind != "AutoModel"
    missing = [name for name in found["missing_keys"] if has_own_head or not is_head(name)]
    unknown = [name for name in found["unexpected_keys"] if trained or not is_head(name)]
    unknown = [name for name in unknown if not BUFFER.search(name)]
    check_names(source, missing, unknown, "those of its config.json", FIX)
    for name, shape, wanted in sorted(found["mismatched_keys"]):
        if has_own_head or not is_head(name):
            raise _other_shape(source, name, shape, wanted, FIX)
    if found["error_msgs"]:
        raise ValueError(found["error_msgs"][0])


def check_names(
    source: str | Path, missing: Collection[str], unknown: Collection[str], expected: str, fix: str
) -> None:
    """Refuse tensors that are missing or too many, by the name of the first."""
    for names, what in ((missing, "no tensor"), (unknown, "the unknown tensor")):
        if names:
            more = f" ({len(names)} such)" if len(names) > 1 else ""
            raise input_error(source, f"{what} {shorten(min(names), COMPLAINT_LENGTH)}{more}", expected, fix)


def check_numbers(source: str | Path, tensors: Mapping[str, Tensor], fix: str) -> None:
    """Refuse weights that are no numbers or infinite."""
    for name, value in tensors.items():
        if value.dtype.is_floating_point and not bool(torch.isfinite(value).all()):
            raise input_error(source, f"{shorten(name)} with other than finite numbers", "weights", fix)


def check_tensors(source: str | Path, found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], fix: str) -> None:
    """Refuse tensors of a file but for the wanted ones: by name, shape and finite numbers."""
    expected = f"the {len(wanted)} tensors of this model"
    check_names(source, wanted.keys() - found, found.keys() - wanted, expected, fix)
    for name, value in found.items():
        if value.shape != wanted[name].shape:
            raise _other_shape(source, name, value.shape, wanted[name].shape, fix)
        if value.dtype not in FLOATS.values():
            raise input_error(source, f"{shorten(name)[1:-1]} with other than finite numbers", "weights", fix)
    check_numbers(source, found, fix)


def _other_shape(source: str | Path, name: str, found: Iterable[int], wanted: Iterable[int], fix: str) -> InputError:
    return input_error(source, f"{shorten(name)[1:-1]} of shape {tuple(found)}", str(tuple(wanted)), fix)


def load_tensors(folder: str | Path, name: str, module: nn.Module | None, kind: type[Settings]) -> None:
    """Load the weights of a part that has a file of its own; without the part, it is empty."""
    path = Path(folder) / name
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise wrong_model(folder, kind, error) from error
    check_tensors(path, weights, module.state_dict() if module else {}, FIX)
    if module:
        module.load_state_dict(weights)


def read_settings(folder: str | Path, kind: type[Settings]) -> Settings:
    """Read back the settings of a model."""
    path = Path(folder) / kind.FILE
    try:
        node = read_json(path, FIX)
    except OSError as error:
        raise wrong_model(folder, kind, error) from error
    names, hints = {field.name for field in dataclasses.fields(kind)}, typing.get_type_hints(kind)
    if unknown := node.of(dict).keys() - names:
        raise node.complain(f"the unknown setting {shorten(min(unknown))}")
    written = set(kind.WRITTEN) | set(node.of(dict))
    return kind(**{name: _read(node[name], hints[name]) for name in written})


def own_settings(folder: str | Path, asked: Settings) -> Settings:
    """Read the settings of a model to start from; others that were asked for are refused."""
    own = read_settings(folder, type(asked))
    for field in dataclasses.fields(asked):
        wanted, found = getattr(asked, field.name), getattr(own, field.name)
        if wanted not in (field.default, found):
            place, fix = f"--{field.name.replace('_', '-')}", "leave it out, or say it where that folder is made"
            raise input_error(place, str(wanted), f"{found}, as {Path(folder) / own.FILE} says", fix)
    return own


def _read(node: Node, hint: Any) -> Any:
    choices = typing.get_args(hint)
    if not choices:
        value = node.read(hint)
        if hint is int and not 1 <= value <= LONGEST:
            raise node.complain(str(value), f"a number from 1 to {LONGEST:,}")
        return value
    value = node.read(type(choices[0]))
    if value not in choices:
        raise node.complain(shorten(str(value)), f"one of {', '.join(map(str, choices))}")
    return value


def wrong_model(folder: str | Path, kind: type[EncoderSettings] | type[PairSettings], error: Exception) -> InputError:
    """Say that a folder does not hold the model it should."""
    found, expected = f"no {kind.MODEL} ({error})", f"a folder that `{kind.STAGE}` wrote"
    return input_error(folder, found, expected, "name it, or train again")

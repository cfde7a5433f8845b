"""Load a model folder: exactly the weights that its config implies, all finite; or a one-line error."""

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
from cort.models.hub import COMPLAINT_LENGTH, reason_of
from cort.models.settings import FIX, EncoderSettings, PairSettings
from cort.system.errors import InputError, input_error, shorten
from cort.system.imports import uncollected
from cort.system.interruption import Interrupted

Settings = TypeVar("Settings", EncoderSettings, PairSettings)

#: transformers' class of encoder-decoders
SEQ2SEQ = "AutoModelForSeq2SeqLM"
OTHER = "name another model"
# Limits on numbers in a config; that of layers and other parts, which are built before weights are read, is lower.
PARTS, MOST_PARTS, MOST = re.compile("layer|label|group|expert"), 1_000, 10_000_000
# Buffers that older versions of transformers saved and later ones recompute.
BUFFER = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
POSITIVE = re.compile("max_position_embeddings|(.*_)?eps|num_.*heads|rope_theta")
# Types of weights; narrower floating-point types are meaningless without scales.
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
# Upper limit of a length in tokens and of a vector's size.
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
    """Load a transformer: safetensors only, no remote code, single precision.

    Its weights must be those that its config implies. In a model to start training from, a head (everything outside the
    transformer, and the pooler) may be missing, and is then drawn at random, or unused.

    :param kind: class of transformers; `options` are its arguments, and settings that override those of the config.
    :param trained: whether no head may be missing or unused, except for a pooler, which an encoder does not need.
    :param decoder: whether to accept a decoder, in which only the last token attends to the whole text.
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
            check_seq2seq(source, config)
        else:
            check_encoder(source, config, OTHER, decoder)
        _check_made_as(source, config)
        load = getattr(transformers, kind).from_pretrained
        # At first without memory for weights, because missing ones, and those of another shape, would be drawn.
        planned = {"device_map": "meta", "ignore_mismatched_sizes": True, "output_loading_info": True}
        with uncollected():  # as it imports the class of the model
            model, report = load(str(source), **everything, **planned)
        _check_report(source, model, report, trained, has_own_head=trained and kind != "AutoModel")
        model = load(str(source), **everything)
    except (InputError, Interrupted):
        raise
    except Exception as error:  # transformers, its config classes and safetensors raise errors of many kinds
        expected = "a transformers folder with config.json and model.safetensors"
        raise input_error(source, f"no complete model ({reason_of(error)})", expected, fix) from error
    check_numbers(source, model.state_dict(), FIX)
    return typing.cast(nn.Module, model)


def _check_types(folder: Path) -> None:
    """Refuse weights that are not floating point and would be converted; position ids are not weights."""
    for path in _weight_files(folder):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                kind = file.get_slice(name).get_dtype()
                if not name.endswith("_ids") and kind not in FLOATS:
                    raise input_error(folder, f"{shorten(name)} of type {kind}", "floating point", FIX)


def _weight_files(folder: Path) -> list[Path]:
    """List the files with weights that transformers reads: a single one, or those that an index names."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file() or not index.is_file():
        return [single] if single.is_file() else []
    files = read_json(index, FIX)["weight_map"]
    names = set(files.read(dict[str, str]).values())
    for name in names:
        if Path(name).name != name:
            raise files.complain(shorten(name), "files in the same folder")
    return [folder / name for name in sorted(names)]


def check_config(source: str | Path, settings: Mapping[str, Any], fix: str) -> None:
    """Refuse settings with which no model can be built, or that would change its results."""
    for name, value in settings.items():
        most = MOST_PARTS if PARTS.search(name) else MOST
        wrong = isinstance(value, int) and abs(value) > most
        if wrong or (isinstance(value, float) and not math.isfinite(value)):
            raise input_error(source, f"{name} {shorten(str(value)).strip(chr(39))}", f"a number up to {most:,}", fix)
        if name == "quantization_config" and value is not None:
            raise input_error(source, "quantized weights", "floating point", "use the model before quantization")
        # With chunks, texts of some lengths cannot be encoded.
        if name == "chunk_size_feed_forward" and value:
            raise input_error(source, f"{name} {value}", "0", fix)
        if POSITIVE.fullmatch(name) and isinstance(value, int | float) and value <= 0:
            raise input_error(source, f"{name} {value}", "more than 0", fix)


def check_encoder(source: str | Path, config: Any, fix: str, decoder: bool = False) -> None:
    """Refuse models that do not read texts in both directions like masked language models.

    :param decoder: whether to accept a decoder, too.
    """
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING

    if decoder and not config.is_encoder_decoder and type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return
    if (kind := _kind_of(config)) != "an encoder":
        raise input_error(source, f"a {config.model_type}, {kind}", "an encoder of text like BERT", fix)


def check_seq2seq(source: str | Path, config: Any) -> None:
    """Refuse models that are not encoder-decoders."""
    from transformers import MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING

    if not config.is_encoder_decoder or type(config) not in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
        raise input_error(source, f"a {config.model_type}, {_kind_of(config)}", "an encoder-decoder like T5", OTHER)


def _kind_of(config: Any) -> str:
    """Name the kind of a model according to its config."""
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


def check_numbers(source: str | Path, tensors: Mapping[str, Tensor], fix: str) -> None:
    """Refuse NaN and infinite weights."""
    for name, value in tensors.items():
        if value.dtype.is_floating_point and not bool(torch.isfinite(value).all()):
            raise input_error(source, f"{shorten(name)} with NaN or infinite values", "finite weights", fix)


def check_tensors(source: str | Path, tensors: Mapping[str, Tensor], wanted: Mapping[str, Tensor], fix: str) -> None:
    """Refuse tensors of a file whose names or shapes differ from the expected ones, or whose values are not finite."""
    expected = f"the {len(wanted)} tensors of this model"
    _check_names(source, wanted.keys() - tensors, tensors.keys() - wanted, expected, fix)
    for name, value in tensors.items():
        if value.shape != wanted[name].shape:
            raise _other_shape(source, name, value.shape, wanted[name].shape, fix)
        if value.dtype not in FLOATS.values():
            raise input_error(source, f"{shorten(name)} of type {value.dtype}", "floating point", fix)
    check_numbers(source, tensors, fix)


def _other_shape(source: str | Path, name: str, found: Iterable[int], wanted: Iterable[int], fix: str) -> InputError:
    return input_error(source, f"{shorten(name)[1:-1]} of shape {tuple(found)}", str(tuple(wanted)), fix)


def load_tensors(folder: str | Path, name: str, module: nn.Module | None, kind: type[Settings]) -> None:
    """Load the weights of a layer from its own file, which is empty if there is no such layer."""
    path = Path(folder) / name
    try:
        weights = load_file(path)
    except (OSError, SafetensorError) as error:
        raise wrong_model(folder, kind, error) from error
    check_tensors(path, weights, module.state_dict() if module else {}, FIX)
    if module:
        module.load_state_dict(weights)


def read_settings(folder: str | Path, kind: type[Settings]) -> Settings:
    """Read the settings of a model folder."""
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


def own_settings(folder: str | Path, options: Settings) -> Settings:
    """Read the settings of a model to start training from; refuse options that contradict them."""
    own = read_settings(folder, type(options))
    for field in dataclasses.fields(options):
        wanted, value = getattr(options, field.name), getattr(own, field.name)
        if wanted not in (field.default, value):
            option, fix = f"--{field.name.replace('_', '-')}", "leave it out, or set it where that folder is made"
            raise input_error(option, str(wanted), f"{value}, as {Path(folder) / own.FILE} says", fix)
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
    """Make the error for a folder without a model of this kind."""
    found, expected = f"no {kind.MODEL} ({error})", f"a folder that `{kind.STAGE}` wrote"
    return input_error(folder, found, expected, "name that folder, or train again")

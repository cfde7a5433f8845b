"""Load a model folder: exactly the weights that its config implies, all finite; or a one-line error."""

from __future__ import annotations

import dataclasses
import math
import re
import typing
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from cort.formats.artifacts import Node, read_json
from cort.models.layout import LONGEST, Settings
from cort.models.settings import FIX, PairSettings
from cort.runtime.errors import COMPLAINT_LENGTH, InputError, input_error, reason_of, shorten
from cort.runtime.imports import uncollected
from cort.runtime.interruption import Interrupted

#: transformers' classes of encoder-decoders and of models with labels
SEQ2SEQ, CLASSIFIER = "AutoModelForSeq2SeqLM", "AutoModelForSequenceClassification"
# Encoder halves of encoder-decoders.
ENCODERS = ("T5EncoderModel", "MT5EncoderModel", "UMT5EncoderModel")
# Arguments of transformers: no code of others, and weights that cannot contain any.
TRUSTED = {"trust_remote_code": False, "local_files_only": True}
EVERYTHING = TRUSTED | {"use_safetensors": True, "dtype": torch.float32}
OTHER = "name another model"
# Limits on numbers in a config; that of layers and other parts, which are built before weights are read, is lower.
PARTS, MOST_PARTS, MOST = re.compile("layer|label|group|expert"), 1_000, 10_000_000
# Buffers that older versions of transformers saved and later ones recompute.
BUFFER = re.compile(r"(^|\.)embeddings\.(position_ids|token_type_ids)$")
POSITIVE = re.compile("max_position_embeddings|(.*_)?eps|num_.*heads|rope_theta")
# Types of weights; narrower floating-point types are meaningless without scales.
FLOATS = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}


def load_transformer(
    source: str | Path, kind: str = "AutoModel", *, trained: bool = False, fix: str = FIX, **options: Any
) -> nn.Module:
    """Load a transformer: safetensors only, no remote code, single precision.

    :param kind: class of transformers; `options` are its arguments, and settings that override those of the config.
    :param trained: as in `check_transformer`.
    """
    import transformers

    check_transformer(source, kind, trained, fix, **options)
    model = getattr(transformers, kind).from_pretrained(str(source), **(EVERYTHING | without_flash(source) | options))
    check_numbers(source, model.state_dict(), FIX)
    return typing.cast(nn.Module, model)


def check_transformer(
    source: str | Path,
    kind: str = "AutoModel",
    trained: bool = False,
    fix: str = FIX,
    released: bool = False,
    **options: Any,
) -> None:
    """Refuse a folder whose config, code or weights do not fit together; weights are not loaded.

    Weights must be those that the config implies. In a model to start training from, a head (everything outside the
    transformer, and the pooler) may be missing, and is then drawn at random, or unused.

    :param trained: whether no head may be missing or unused, except for a pooler, which an encoder does not need, and
        a head that the config names.
    :param released: whether to accept decoders, and the encoder halves of encoder-decoders, too.
    """
    with uncollected():
        import transformers

    try:
        if Path(source).is_dir():
            written = read_json(Path(source) / "config.json", FIX).of(dict)
            check_config(Path(source) / "config.json", written, FIX)
            if (code := written.get("auto_map")) and written.get("model_type") not in transformers.CONFIG_MAPPING:
                found = f"custom code, auto_map {shorten(str(code))}"
                raise input_error(Path(source) / "config.json", found, "a model class of transformers", OTHER)
            check_types(Path(source))
        config = transformers.AutoConfig.from_pretrained(str(source), **(TRUSTED | _of_config(options)))
        kind = check_kind(source, config, kind, released)
        _check_made_as(source, config)
        # Without memory for weights, because missing ones, and those of another shape, would be drawn.
        planned = {"device_map": "meta", "ignore_mismatched_sizes": True, "output_loading_info": True}
        with uncollected():  # as it imports the class of the model
            # Its own report, which is also logged, says less clearly what is wrong.
            transformers.logging.set_verbosity_error()
            transformers.logging.disable_progress_bar()
            model, report = getattr(transformers, kind).from_pretrained(
                str(source), **(EVERYTHING | without_flash(source) | options), **planned
            )
        known = trained and not (kind == "AutoModel" and _names_head(config))
        _check_report(source, model, report, known, has_own_head=trained and kind != "AutoModel")
    except (InputError, Interrupted):
        raise
    except Exception as error:  # transformers, its config classes and safetensors raise errors of many kinds
        expected = "a transformers folder with config.json and model.safetensors"
        raise input_error(source, f"no complete model ({reason_of(error)})", expected, fix) from error


def without_flash(folder: str | Path, arguments: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Replace flash attention, which few machines have and none in single precision, by torch's own.

    :param arguments: of the transformer, besides its config.
    """
    settings = (Settings(Path(folder) / "config.json").values, arguments or {})
    named = [part.get(name) for part in settings for name in ("attn_implementation", "_attn_implementation")]
    return {"attn_implementation": "sdpa"} if any("flash" in str(name) for name in named) else {}


def _of_config(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if name != "add_pooling_layer"}


def _names_head(config: Any) -> bool:
    """Tell whether the config says that the weights include a head, which an encoder leaves out."""
    import transformers

    names = config.architectures or ()
    return any(re.search("For|Head", name) and hasattr(transformers, name) for name in names)


def check_types(folder: Path) -> None:
    """Refuse weights that are not floating point and would be converted; ids are not weights."""
    for path in _weight_files(folder):
        try:
            with safe_open(path, "pt") as file:
                kinds = {name: file.get_slice(name).get_dtype() for name in file.keys()}  # noqa: SIM118 - no mapping
        except SafetensorError as error:
            found = f"no complete model ({reason_of(error)})"
            raise input_error(folder, found, f"weights in {path.name}", FIX) from error
        for name, kind in kinds.items():
            if not name.endswith(("_ids", "mapping")) and kind not in FLOATS:
                raise input_error(folder, f"{shorten(name)} of type {kind}", "floating point", FIX)


def _weight_files(folder: Path) -> list[Path]:
    """List the files with weights that transformers reads: a single one, or those that an index names."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file() and index.is_file():
        found = f"two sets of weights, {single.name} and {index.name}"
        raise input_error(folder, found, "one", "delete the one that is not the model's")
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


def check_kind(source: str | Path, config: Any, kind: str, released: bool = False, fix: str = OTHER) -> str:
    """Refuse a config that no model of a class of transformers reads texts with, in both directions unless `released`.

    :returns: the class; of an encoder-decoder, that of its encoder.
    """
    import transformers

    found, expected = _kind_of(config), "an encoder of text like BERT"
    if kind == SEQ2SEQ:
        expected = "an encoder-decoder like T5"
        if config.is_encoder_decoder and type(config) in transformers.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING:
            return kind
    elif found == "an encoder":
        return kind
    elif released:
        half = next((name for name in ENCODERS if getattr(transformers, name).config_class is type(config)), None)
        if half and kind == "AutoModel":
            return half
        if not config.is_encoder_decoder and type(config) in transformers.MODEL_FOR_CAUSAL_LM_MAPPING:
            return kind
    raise input_error(source, f"a {config.model_type}, {found}", expected, fix)


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
            found = f"{shorten(name, COMPLAINT_LENGTH)} with NaN or infinite values"
            raise input_error(source, found, "finite weights", fix)


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


def read_settings(folder: str | Path) -> PairSettings:
    """Read the settings of a re-ranker that sentence-transformers does not have."""
    node = read_json(Path(folder) / PairSettings.FILE, FIX)
    hints = typing.get_type_hints(PairSettings)
    names = hints.keys() & {field.name for field in dataclasses.fields(PairSettings)}
    if unknown := node.of(dict).keys() - names:
        raise node.complain(f"the unknown setting {shorten(min(unknown))}")
    written = {"query_length", "max_length", *node.of(dict)}
    return PairSettings(**{name: _read(node[name], hints[name]) for name in written})


def _read(node: Node, hint: Any) -> Any:
    choices = typing.get_args(hint)
    value = node.read(type(choices[0]) if choices else hint)
    if choices and value not in choices:
        raise node.complain(shorten(str(value)), f"one of {', '.join(map(str, choices))}")
    if hint is int and not 1 <= value <= LONGEST:
        raise node.complain(str(value), f"a number from 1 to {LONGEST:,}")
    return value

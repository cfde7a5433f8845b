"""Take in an encoder that the authors of CoRT released, or one saved in that form, instead of training one.

The file is what torch.save wrote: a checkpoint of PyTorch Lightning with a ``state_dict``, or the state_dict itself.
Its tensors are those of a transformer, ``transformer.*``, and of the projection, ``f1.weight`` and ``f1.bias``. It is
a pickle, the only one this program ever opens, and torch may build tensors and plain values from it, nothing else.
Or it is a ``.safetensors`` file. One of a transformers model, without the prefix or with the architecture's own
(``bert.``), is an encoder without projection: those of sentence-transformers, or a base model as it is.
Every weight of the model comes from it; architecture and tokenizer are the base model's.

Reads:  the file, a base model folder
Writes: the model folders best/ and last/, which are the same

Usage:  python -m cort.import_encoder --weights cort-e128.ckpt --base-model base_models/albert --dimension 128
            --output encoders/cort
"""

from __future__ import annotations

import logging
import re
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cort.models.settings import EncoderSettings
from cort.system import cli
from cort.system.errors import InputError, input_error, shorten
from cort.system.options import read_options, required

if TYPE_CHECKING:
    from torch import Tensor

log = logging.getLogger(__name__)

# Never used by an encoder; buffers that older transformers saved and newer ones count anew; heads of pre-training.
DROPPED = re.compile(r"transformer\.(pooler\..+|cls\..+|predictions\..+|embeddings\.(position_ids|token_type_ids))")
PREFIX = "transformer."
CODE = re.compile(r"GLOBAL (\S+)")
COMPLAINT_LENGTH = 160
FIX = "name the base model it was trained from, or another file"


def read_tensors(path: str | Path) -> dict[str, Tensor]:
    """Read a released file, which may hold tensors and plain values alone.

    :raises InputError: for all else; nothing of it is run.
    """
    import torch
    from safetensors.torch import load_file

    with Path(path).open("rb"):
        pass  # what keeps it from being read at all is told as the system says it
    try:
        if Path(path).suffix == ".safetensors":
            return load_file(path)
        with warnings.catch_warnings():
            # What torch thinks of the form of a pickle is for those who write one.
            warnings.simplefilter("ignore")
            found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch has errors of many kinds for files that are none of its own
        complaint = f"what is no file of tensors and plain values ({shorten(_reason(error), COMPLAINT_LENGTH)})"
        fix = "fetch it again, or get its state_dict alone from who made it"
        raise input_error(path, complaint, "a Lightning checkpoint or a state_dict", fix) from error
    tensors = found.get("state_dict", found) if isinstance(found, dict) else found
    if not isinstance(tensors, dict) or not tensors:
        raise _wrong(path, f"a {type(tensors).__name__} without tensors", "a state_dict")
    for name, value in tensors.items():
        if not isinstance(name, str) or not isinstance(value, torch.Tensor):
            raise _wrong(path, f"{shorten(str(name))}, a {type(value).__name__}", "names and tensors alone")
        if value.layout is not torch.strided or value.is_meta or value.is_quantized:
            found = f"{shorten(name)} that is quantized, sparse or without numbers"
            raise _wrong(path, found, "plain tensors", "save them so")
    return tensors


def _reason(error: Exception) -> str:
    """Say what torch stumbled over, without its advice to trust the file."""
    if named := CODE.search(str(error)):
        return f"it names {named[1]}"
    said = str(error).rpartition("WeightsUnpickler error:")[2].strip()
    return said.splitlines()[0] if said else type(error).__name__


def rename(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Name the tensors of a transformers model as the authors do; theirs stay as they are.

    :param prefix: that of the architecture, which a model with a head has before its transformer's names.
    """
    if any(name.startswith(PREFIX) for name in tensors):
        return tensors
    return {
        name if name.startswith("f1.") else PREFIX + name.removeprefix(f"{prefix}."): value
        for name, value in tensors.items()
    }


def fit(path: str | Path, tensors: dict[str, Tensor], expected: dict[str, Tensor]) -> dict[str, Tensor]:
    """Name released tensors as an encoder does, in single precision.

    :param expected: the encoder's own; each is to be replaced, by one of the same shape.
    """
    import torch

    from cort.models.loading import check_numbers, check_tensors

    wanted = {re.sub(r"^projection\.", "f1.", name): value for name, value in expected.items()}
    found = {name: value for name, value in tensors.items() if name in wanted or not DROPPED.fullmatch(name)}
    shapes = [part["f1.weight"].shape for part in (found, wanted) if "f1.weight" in part]
    if len(shapes) == 2 and len(shapes[0]) == 2 and shapes[0][0] != shapes[1][0]:
        raise _wrong(
            path, f"f1.weight of shape {tuple(shapes[0])}", str(tuple(shapes[1])), f"set dimension to {shapes[0][0]}"
        )
    check_tensors(path, found, wanted, FIX)
    single = {name: value.to(torch.float32) for name, value in found.items()}
    # Larger numbers have become infinite.
    check_numbers(path, single, FIX)
    return {re.sub(r"^f1\.", "projection.", name): value for name, value in single.items()}


def _wrong(path: str | Path, found: str, expected: str, fix: str = FIX) -> InputError:
    return input_error(path, found, expected, fix)


@dataclass(frozen=True, kw_only=True)
class Options(EncoderSettings):
    """Options of this stage."""

    weights: str = required("FILE", "what was released")
    base_model: str = required("FOLDER", "its architecture and tokenizer")
    output: str = required("FOLDER", "of best/ and last/")


def stage(options: Options) -> None:
    """Read, check, write both folders."""
    from cort.models.encoder import new_encoder, save_encoder

    tensors = read_tensors(options.weights)
    # No number of this seed is left.
    encoder = new_encoder(options.base_model, read_options(EncoderSettings, options), seed=0)
    tensors = rename(tensors, encoder.transformer.base_model_prefix)
    encoder.load_state_dict(fit(options.weights, tensors, encoder.state_dict()))
    for piece in ("best", "last"):
        save_encoder(encoder, options.base_model, Path(options.output) / piece)
    count = sum(weights.numel() for weights in encoder.parameters())
    log.info("took %d weights from %s", count, options.weights)


main = cli.main_of(Options, stage)

if __name__ == "__main__":
    sys.exit(main())

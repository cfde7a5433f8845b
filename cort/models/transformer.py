"""What the encoder and the re-ranker share: loading, saving, running on batches of similar length, and fingerprints."""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn

from cort.models.batching import Sequences, by_length, pad
from cort.models.settings import EncoderSettings, PairSettings
from cort.system.errors import InputError, input_error, shorten
from cort.system.files import atomic_folder, checksum
from cort.system.program import program_of

log = logging.getLogger(__name__)

Settings = TypeVar("Settings", EncoderSettings, PairSettings)

#: libraries whose release can change what a model computes
LIBRARIES = ("accelerate", "numpy", "torch", "transformers")
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
# Padded tokens that go through the transformer at once: few stay in a CPU's cache, many fill a GPU, more pad more
# (in length order .1 % of SQuAD's passages at 1,024, 2 % at 16,384, 7 % at 65,536; 67 % as they come). Part of the
# result, as padding changes the last bits: not a setting.
TOKEN_BUDGETS = {"cpu": 1_024, "cuda": 16_384}


def load_transformer(folder: str | Path, kind: str = "AutoModel", **changes: Any) -> nn.Module:
    """Load a transformers folder: safetensors only, no remote code, single precision.

    :param kind: transformers' class; `changes` are settings of the model to replace.
    """
    import transformers

    options = {"use_safetensors": True, "trust_remote_code": False, "local_files_only": True, "dtype": torch.float32}
    try:
        model: nn.Module = getattr(transformers, kind).from_pretrained(str(folder), **options, **changes)
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        found = f"no whole model ({shorten(str(error), 200)})"
        expected = "a transformers folder with config.json and model.safetensors"
        raise input_error(folder, found, expected, "name it, or build it again") from error
    return model


def accepted_inputs(transformer: nn.Module) -> tuple[str, ...]:
    """Name the tensors the model takes; segments only where it has embeddings for two."""
    names = ["input_ids", "attention_mask"]
    config: Any = transformer.config
    if "token_type_ids" in inspect.signature(transformer.forward).parameters and config.type_vocab_size > 1:
        names.append("token_type_ids")
    else:
        log.warning("%s has no second segment: it cannot tell queries and passages apart by it", config.model_type)
    return tuple(names)


def most_tokens(transformer: nn.Module) -> int:
    """Count the positions of a model; those like RoBERTa number them from the padding token's id on."""
    base: Any = transformer.base_model
    positions = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    limit = int(getattr(base.config, "max_position_embeddings", sys.maxsize))
    return limit - (0 if padding is None else padding + 1)


def check_length(name: str, length: int, shortest: int, transformer: nn.Module) -> None:
    """Refuse a length in tokens that leaves no room for text or has no position embeddings."""
    longest = most_tokens(transformer)
    if not shortest <= length <= longest:
        raise input_error(name, str(length), f"{shortest} to {longest} tokens for this model", "change it")


def save_model(
    folder: str | Path,
    transformer: Any,
    tokenizer_folder: str | Path,
    settings: EncoderSettings | PairSettings,
    weights: Mapping[str, dict[str, Tensor]] | None = None,
) -> None:
    """Write transformer, tokenizer, settings, and other weights by file; whole or not at all."""
    with atomic_folder(folder) as temporary:
        transformer.save_pretrained(temporary)
        (temporary / settings.FILE).write_text(json.dumps(asdict(settings), indent=2) + "\n", encoding="utf-8")
        for name in TOKENIZER_FILES:
            shutil.copyfile(Path(tokenizer_folder) / name, temporary / name)
        for name, tensors in (weights or {}).items():
            save_file(tensors, temporary / name)


def read_settings(folder: str | Path, kind: type[Settings]) -> Settings:
    """Read back the settings of a model."""
    try:
        written = json.loads((Path(folder) / kind.FILE).read_text(encoding="utf-8"))
        if missing := set(kind.WRITTEN) - set(written):
            raise TypeError(f"{kind.FILE} without {min(missing)}")
        return kind(**written)
    except (OSError, TypeError, json.JSONDecodeError) as error:
        raise wrong_model(folder, kind, error) from error


def wrong_model(folder: str | Path, kind: type[EncoderSettings] | type[PairSettings], error: Exception) -> InputError:
    """Say that a folder does not hold the model it should."""
    found, expected = f"no {kind.MODEL} ({error})", f"a folder that `{kind.STAGE}` wrote"
    return input_error(folder, found, expected, "name it, or train again")


def model_fingerprint(folder: str | Path) -> str:
    """Identify a model by the bytes that decide what it computes."""
    digest = hashlib.sha256()
    for path in sorted(Path(folder).iterdir()):
        if path.suffix in {".safetensors", ".json"}:
            digest.update(path.name.encode())
            with open(path, "rb") as handle:
                while chunk := handle.read(1 << 20):
                    digest.update(chunk)
    return digest.hexdigest()[:16]


def identity(module: str, options: Mapping[str, object], files: Iterable[str], model: str) -> str:
    """Name a computation by all that decides its result.

    :param module: the stage; what it and all that it imports does counts.
    :param options: those that change the result, without paths.
    :param files: paths whose content counts, in a fixed order.
    :param model: folder of the model it works with or starts from.
    """
    parts = {
        "options": dict(options),
        "files": [checksum(path) for path in files],
        "model": model_fingerprint(model),
        "source": program_of(module),
        "libraries": {name: version(name) for name in LIBRARIES},
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def forward_by_length(
    model: Callable[[dict[str, Tensor]], Tensor],
    sequences: Sequences,
    device: torch.device,
    token_budget: int | None = None,
) -> Tensor:
    """Run sequences through the model in sub-batches of similar length.

    :param token_budget: padded tokens that go through the transformer at once; None takes those of `TOKEN_BUDGETS`.
    :returns: one output per sequence, in order, shape (sequences, ...).
    """
    parts: list[Tensor] = []
    order: list[npt.NDArray[np.intp]] = []
    for members in by_length(sequences.lengths, token_budget or TOKEN_BUDGETS[device.type]):
        batch = pad([sequences.frame(int(row)) for row in members], sequences.pad_id)
        if device.type == "cuda":
            # From pinned memory the copy waits for nobody: the next sub-batch is padded while this one is computed.
            batch = {name: tensor.pin_memory().to(device, non_blocking=True) for name, tensor in batch.items()}
        parts.append(model(batch))  # (members, ...)
        order.append(members)
    inverse = np.argsort(np.concatenate(order), kind="stable")
    return torch.cat(parts)[torch.from_numpy(inverse).to(device)]


def choose_device(threads: int, leased: Sequence[str]) -> torch.device:
    """Take the GPU if there is one, else `threads` threads of the CPU.

    :param leased: devices held for this; a warning tells if torch can use none.
    """
    torch.set_num_threads(threads)
    if torch.cuda.is_available():
        return torch.device("cuda")
    if leased:
        names = ", ".join(leased)
        log.warning("torch %s cannot use %s (CPU build or driver); the CPU is used", torch.__version__, names)
    return torch.device("cpu")


def place(model: nn.Module, transformer: nn.Module, device: torch.device, precision: str) -> None:
    """Move a model to a device to be used, not trained: its transformer in `precision`, what follows in fp32.

    Rounded weights are faster than autocast, which rounds them again for each sub-batch and normalises in fp32.
    """
    model.to(device)
    transformer.to(PRECISIONS[precision])


def single(states: Tensor) -> Tensor:
    """Widen half precision, of any shape; more than single precision stays."""
    return states.to(torch.promote_types(states.dtype, torch.float32))

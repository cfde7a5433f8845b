"""CoRT's encoder: a BERT-like transformer, pooling, a linear projection to `e` dimensions and tanh (section 3.2).

On disk a transformers folder (loadable with AutoModel) with ``projection.safetensors`` and ``cort.json`` beside it.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import logging
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cort.batching import by_length, frame_text, pad
from cort.errors import input_error, shorten
from cort.files import atomic_folder
from cort.formats.tokens import Tokens
from cort.tokenization import Template, load_template

log = logging.getLogger(__name__)

#: segment ids (section 3.2): the two kinds of text are told apart by their segment embedding alone
SEGMENTS = {"passage": 0, "query": 1}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")


@dataclass(frozen=True)
class EncoderSettings:
    """What makes a transformer a CoRT encoder; lengths count special tokens."""

    pooling: Literal["cls", "mean"]
    dimension: int
    query_length: int
    passage_length: int

    def length(self, kind: str) -> int:
        """Tokens a text of `kind` ("query" or "passage") is cut to."""
        return self.query_length if kind == "query" else self.passage_length


class Encoder(nn.Module):
    """Map token ids to vectors in (-1, 1)^e."""

    def __init__(self, transformer: Any, settings: EncoderSettings) -> None:
        super().__init__()
        self.settings = settings
        self.transformer = without_pooler(transformer)
        self.projection = nn.Linear(transformer.config.hidden_size, settings.dimension)
        self.inputs = accepted_inputs(transformer)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch, e)."""
        mask = batch["attention_mask"]
        states = self.transformer(**{name: batch[name] for name in self.inputs}).last_hidden_state  # (batch, length, h)
        pooled = states[:, 0] if self.settings.pooling == "cls" else mean_pool(states, mask)  # (batch, h)
        return torch.tanh(self.projection(pooled))  # (batch, e)


@dataclass(frozen=True)
class Texts:
    """Token ids of one kind of text ("query" or "passage") and how to frame them."""

    tokens: Tokens
    template: Template
    kind: str
    max_length: int

    def encode(self, model: nn.Module, rows: npt.NDArray[np.int64], device: torch.device, token_budget: int) -> Tensor:
        """Encode rows in sub-batches of similar length; returns (len(rows), e) in the order of `rows`.

        :param token_budget: padded tokens that go through the transformer at once.
        """
        lengths = np.minimum(self.tokens.lengths[rows] + self.template.extra, self.max_length)
        parts: list[Tensor] = []
        order: list[npt.NDArray[np.intp]] = []
        for members in by_length(lengths, token_budget):
            frames = [
                frame_text(self.tokens[row], self.template, self.max_length, SEGMENTS[self.kind])
                for row in rows[members]
            ]
            batch = {name: tensor.to(device) for name, tensor in pad(frames, self.template.pad).items()}
            parts.append(model(batch))  # (members, e)
            order.append(members)
        inverse = np.argsort(np.concatenate(order), kind="stable")
        return torch.cat(parts)[torch.from_numpy(inverse).to(device)]  # (rows, e)


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    """Average the states (batch, length, h) of real tokens, special ones included, in single precision."""
    weights = mask.unsqueeze(-1).to(torch.float32)  # (batch, length, 1)
    return (states.float() * weights).sum(1) / weights.sum(1)  # (batch, h)


def without_pooler(transformer: Any) -> nn.Module:
    """Drop the pretrained pooler: neither pooling uses it, and unused weights are neither trained nor saved."""
    if getattr(transformer, "pooler", None) is not None:
        transformer.pooler = None
    model: nn.Module = transformer
    return model


def accepted_inputs(transformer: nn.Module) -> tuple[str, ...]:
    """Names of the tensors the model takes; segments only where it has embeddings for two."""
    names = ["input_ids", "attention_mask"]
    config: Any = transformer.config
    if "token_type_ids" in inspect.signature(transformer.forward).parameters and config.type_vocab_size > 1:
        names.append("token_type_ids")
    else:
        log.warning("%s has no second segment: queries and passages are encoded alike", config.model_type)
    return tuple(names)


def new_encoder(language_model: str | Path, settings: EncoderSettings, seed: int) -> Encoder:
    """Put a fresh projection, drawn from `seed`, on a language model folder."""
    transformer = load_transformer(language_model)
    shortest, longest = load_template(language_model).extra + 1, most_tokens(transformer)
    check_length("query_length", settings.query_length, shortest, longest)
    check_length("passage_length", settings.passage_length, shortest, longest)
    torch.manual_seed(seed)
    return Encoder(transformer, settings)


def check_length(name: str, length: int, shortest: int, longest: int) -> None:
    """Refuse a length in tokens that leaves no room for text or has no position embeddings."""
    if not shortest <= length <= longest:
        raise input_error(name, str(length), f"{shortest} to {longest} tokens for this model", "change it")


def most_tokens(transformer: nn.Module) -> int:
    """Count the positions of a model; those like RoBERTa number them from the padding token's id on."""
    base: Any = transformer.base_model
    positions = getattr(getattr(base, "embeddings", None), "position_embeddings", None)
    padding = getattr(positions, "padding_idx", None)
    limit = int(getattr(base.config, "max_position_embeddings", sys.maxsize))
    return limit - (0 if padding is None else padding + 1)


def load_transformer(folder: str | Path, kind: str = "AutoModel", **changes: Any) -> nn.Module:
    """Load a transformers folder: safetensors only, no remote code, single precision.

    :param kind: transformers' class; `changes` are settings of the model to replace.
    """
    import transformers
    from safetensors import SafetensorError

    try:
        model: nn.Module = getattr(transformers, kind).from_pretrained(
            str(folder),
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            dtype=torch.float32,
            **changes,
        )
    except (OSError, ValueError, RuntimeError, SafetensorError) as error:
        raise input_error(
            folder,
            f"no whole model ({shorten(str(error), 200)})",
            "a transformers folder with config.json and model.safetensors",
            "name it, or build it again",
        ) from error
    return model


def save_encoder(encoder: Encoder, tokenizer_folder: str | Path, folder: str | Path) -> None:
    """Write the model folder, whole or not at all."""
    from safetensors.torch import save_file

    with atomic_folder(folder) as temporary:
        transformer: Any = encoder.transformer
        transformer.save_pretrained(temporary)
        weights = {name: value.contiguous() for name, value in encoder.projection.state_dict().items()}
        save_file(weights, temporary / "projection.safetensors")
        settings = json.dumps(asdict(encoder.settings), indent=2) + "\n"
        (temporary / "cort.json").write_text(settings, encoding="utf-8")
        for name in TOKENIZER_FILES:
            shutil.copyfile(Path(tokenizer_folder) / name, temporary / name)


def load_encoder(folder: str | Path) -> tuple[Encoder, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        settings = EncoderSettings(**json.loads((Path(folder) / "cort.json").read_text(encoding="utf-8")))
        encoder = Encoder(load_transformer(folder), settings)
        encoder.projection.load_state_dict(load_file(Path(folder) / "projection.safetensors"))
    except (FileNotFoundError, TypeError, RuntimeError, json.JSONDecodeError, SafetensorError) as error:
        raise input_error(
            folder, f"no CoRT encoder ({error})", "a folder that `train` wrote", "name it, or train again"
        ) from error
    return encoder.eval(), load_template(folder)


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

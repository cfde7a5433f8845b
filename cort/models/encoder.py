"""The encoder of queries and passages: a BERT-like transformer, pooling, projection to `e` dimensions and tanh.

This is CoRT's encoder (section 3.2); without projection and tanh, it is RepBERT's (section 3.1 there). A released
encoder may have another activation, or pool the last token, which in a decoder is the only one to attend to the whole
text.

On disk: a transformers folder (loadable with AutoModel) plus ``projection.safetensors`` and ``cort.json``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.tokens import Tokens
from cort.models.batching import FramedTexts, Rows
from cort.models.loading import load_tensors, load_transformer, own_settings, read_settings
from cort.models.settings import EncoderSettings
from cort.models.tokenizer import Template, load_template, load_tokenizer
from cort.models.transformer import (
    TextModel,
    check_length,
    count_tokens,
    forward_by_length,
    save_model,
    single,
)
from cort.system.errors import input_error

PROJECTION = "projection.safetensors"


class Encoder(TextModel):
    """Map token ids to vectors of `e` numbers, with a projection in (-1, 1)."""

    settings: EncoderSettings

    def __init__(self, transformer: Any, settings: EncoderSettings) -> None:
        super().__init__(transformer, settings, settings.query_segment != settings.passage_segment)
        hidden = transformer.config.hidden_size
        if not settings.projection and settings.dimension != hidden:
            expected, fix = f"the model's {hidden} without a projection", f"set it to {hidden}, or use a projection"
            raise input_error("dimension", str(settings.dimension), expected, fix)
        self.projection = nn.Linear(hidden, settings.dimension) if settings.projection else None

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch, e)."""
        pooled = POOLINGS[self.settings.pooling](self.states(batch), batch["attention_mask"])  # (batch, h)
        if self.projection is None:
            return pooled
        projected: Tensor = self.projection(pooled)  # (batch, e)
        return projected.tanh() if self.settings.activation == "tanh" else projected


class Texts(FramedTexts):
    """Texts of one kind, to be encoded."""

    def encode(self, model: nn.Module, rows: Rows, device: torch.device, token_budget: int | None = None) -> Tensor:
        """Encode rows in sub-batches of similar length (`forward_by_length`); returns (len(rows), e)."""
        return forward_by_length(model, self.sequences(rows), device, token_budget)  # (rows, e)

    def vectors(self, encoder: Encoder, rows: Rows, device: torch.device) -> Tensor:
        """Encode rows for an index: in single precision, and normalized to length 1 except for inner products."""
        with torch.inference_mode():
            vectors = self.encode(encoder, rows, device).float()  # (rows, e)
        return functional.normalize(vectors, dim=-1) if encoder.settings.unit_length else vectors


def texts_of(tokens: Tokens, template: Template, settings: EncoderSettings, kind: str) -> Texts:
    """Frame texts of a kind ("query" or "passage") as an encoder with these settings reads them."""
    if kind == "query":
        return Texts(tokens, template, settings.query_length, settings.query_segment)
    return Texts(tokens, template, settings.passage_length, settings.passage_segment)


def mean_pool(states: Tensor, mask: Tensor) -> Tensor:
    """Average the states (batch, length, h) of all tokens except padding, in at least single precision."""
    states = single(states)
    weights = mask.unsqueeze(-1).to(states.dtype)  # (batch, length, 1)
    return (states * weights).sum(1) / weights.sum(1)  # (batch, h)


def last_token(states: Tensor, mask: Tensor) -> Tensor:
    """Take the state of the last token before padding, from states (batch, length, h)."""
    return single(states[torch.arange(states.shape[0], device=states.device), mask.sum(1) - 1])  # (batch, h)


POOLINGS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda states, _: single(states[:, 0]),
    "mean": mean_pool,
    "last": last_token,
}


def new_encoder(
    base_model: str | Path, settings: EncoderSettings, seed: int, start: str | Path | None = None
) -> Encoder:
    """Put a new projection, drawn from `seed`, on a base model.

    :param start: folder of a trained encoder, whose weights replace both. A base model that is itself an encoder keeps
        its weights and settings.
    """
    if (Path(base_model) / EncoderSettings.FILE).is_file():
        settings, start = own_settings(base_model, settings), start or base_model
    decoder = settings.pooling == "last" and start is not None
    transformer = load_transformer(start or base_model, trained=start is not None, decoder=decoder)
    check_lengths("", settings, base_model, transformer)
    torch.manual_seed(seed)
    encoder = Encoder(transformer, settings)
    if start is not None:
        load_tensors(start, PROJECTION, encoder.projection, EncoderSettings)
    return encoder


def save_encoder(encoder: Encoder, tokenizer_folder: str | Path, folder: str | Path) -> None:
    """Write the model folder atomically."""
    weights = {PROJECTION: encoder.projection.state_dict() if encoder.projection else {}}
    save_model(folder, encoder.transformer, tokenizer_folder, encoder.settings, weights)


def load_encoder(folder: str | Path) -> tuple[Encoder, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, EncoderSettings)
    transformer = load_transformer(folder, trained=True, decoder=settings.pooling == "last")
    template = check_lengths(f"{Path(folder) / EncoderSettings.FILE}: ", settings, folder, transformer)
    encoder = Encoder(transformer, settings)
    load_tensors(folder, PROJECTION, encoder.projection, EncoderSettings)
    return encoder.eval(), template


def check_lengths(place: str, settings: EncoderSettings, folder: str | Path, transformer: nn.Module) -> Template:
    """Refuse lengths that leave no room for text after the prompt or exceed the model's positions.

    :returns: the template of the tokenizer in `folder`.
    """
    template = load_template(folder, count_tokens(transformer))
    for kind in ("query", "passage"):
        prompt, length = (getattr(settings, f"{kind}_{part}") for part in ("prompt", "length"))
        taken = len(load_tokenizer(folder, [prompt]).encode(prompt, add_special_tokens=False).ids) if prompt else 0
        check_length(f"{place}{kind}_length", length, template.extra + 1, transformer, taken)
    return template

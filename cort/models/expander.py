"""Document expansion with an encoder-decoder that predicts the queries a passage answers (doc2query, docTTTTTquery).

Queries are sampled from the k most probable next tokens (Nogueira & Lin, 2019), or found by beam search (Nogueira et
al., 2019).

On disk: a transformers folder of a T5 or another encoder-decoder, with its tokenizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from cort.models.loading import NEEDED, SEQ2SEQ, load_transformer
from cort.models.precision import place
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import check_length, count_tokens


class Sampling(NamedTuple):
    """How queries are predicted: how many of a passage, their tokens at most, including the one that ends them.

    They are sampled from the `top_k` most probable tokens or, with `beams`, the best of a beam search of this width.
    """

    queries: int
    steps: int
    top_k: int = 10
    beams: int | None = None


class Expander(nn.Module):
    """Map passages to the queries that they answer."""

    def __init__(self, transformer: Any, sampling: Sampling) -> None:
        super().__init__()
        self.transformer, self.sampling = transformer, sampling

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference."""
        place(self, device, precision, [self.transformer])

    def forward(self, batch: Mapping[str, Tensor], seed: int) -> Tensor:
        """Predict queries for a batch of passages, ``input_ids`` of shape (passages, length).

        :param seed: of this batch.
        :returns: tokens of shape (passages, queries, at most `steps`), padded after the end.
        :raises FloatingPointError: for a NaN or infinite number.
        """
        queries, steps, top_k, beams = self.sampling
        how: dict[str, Any] = {"do_sample": True, "top_k": top_k}
        if beams is not None:
            how = {"do_sample": False, "num_beams": beams, "early_stopping": False, "length_penalty": 1.0}
        how |= {name: getattr(self.transformer.config, name) for name in NEEDED}
        device = batch["input_ids"].device
        with torch.random.fork_rng([device] if device.type == "cuda" else []):
            torch.manual_seed(seed)
            tokens: Tensor = self.transformer.generate(
                **{name: batch[name] for name in ("input_ids", "attention_mask")},
                logits_processor=LogitsProcessorList([Finite()]),
                generation_config=GenerationConfig(max_new_tokens=steps, num_return_sequences=queries, **how),
            )
        return tokens[:, 1:].reshape(-1, queries, tokens.shape[1] - 1)


class Finite(LogitsProcessor):  # type: ignore[misc]
    """Refuse NaN and infinite logits, before any token is ruled out by an infinite one."""

    def __call__(self, input_ids: Tensor, scores: Tensor) -> Tensor:
        """Return the logits as they are.

        :raises FloatingPointError: for a NaN or infinite one.
        """
        if not bool(torch.isfinite(scores).all()):
            raise FloatingPointError
        return scores


def load_expander(folder: str | Path, passage_length: int, sampling: Sampling) -> tuple[Expander, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template.

    :param passage_length: tokens that a passage is truncated to, special tokens included.
    """
    transformer: Any = load_transformer(folder, SEQ2SEQ, trained=True)
    template = load_template(folder, count_tokens(transformer))
    check_length("--passage-length", passage_length, template.extra + 1, transformer)
    check_length("--query-length", sampling.steps, 2, transformer)
    # A folder's generation settings, such as no repeated n-grams, are for other tasks.
    transformer.generation_config = GenerationConfig()
    return Expander(transformer, sampling).eval(), template

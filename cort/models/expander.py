"""Document expansion with an encoder-decoder that predicts the queries a passage answers (doc2query, docTTTTTquery).

Queries are sampled from the k most probable next tokens (Nogueira & Lin, 2019), or found by beam search (Nogueira et
al., 2019). Sampling uses a counter-based generator keyed by seed, passage, query and step, so a query does not depend
on the rest of the batch, as long as the model's logits do not.

On disk: a transformers folder of a T5 or another encoder-decoder, with its tokenizer.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.models.loading import SEQ2SEQ, load_transformer
from cort.models.settings import LONGEST_QUERY
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import check_length, count_tokens, single
from cort.runtime.errors import input_error

# Keys of config.json: ids of the tokens that begin, end and pad a query.
NEEDED = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
# Bits of a double's significand.
BITS = 53


def load_expander(folder: str | Path, passage_length: int, query_length: int) -> tuple[Any, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template.

    :param passage_length: tokens that a passage is truncated to, special tokens included.
    :param query_length: tokens of a query, including the one that ends it.
    """
    transformer: Any = load_transformer(folder, SEQ2SEQ, trained=True)
    for name in NEEDED:
        if getattr(transformer.config, name, None) is None:
            expected = "the token that begins, ends or pads a predicted query"
            raise input_error(folder, f"no {name} in config.json", expected, "set it there")
    template = load_template(folder, count_tokens(transformer))
    check_length("--passage-length", passage_length, template.extra + 1, transformer)
    check_length("--query-length", query_length, 2, transformer)
    return transformer.eval(), template


def numbers_of(seed: int, doc_id: str, queries: int, steps: int) -> npt.NDArray[np.float64]:
    """Draw numbers in [0, 1) for a passage, shape (queries, steps); a larger shape only adds numbers."""
    key = int.from_bytes(hashlib.blake2b(f"{seed}\t{doc_id}".encode(), digest_size=16).digest(), "little")
    raw = np.random.Philox(key=key).random_raw(queries * LONGEST_QUERY).reshape(queries, LONGEST_QUERY)
    return (raw[:, :steps] >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def draw(logits: Tensor, numbers: Tensor, k: int) -> Tensor:
    """Sample a token from the `k` most probable of each row.

    Tokens are ordered by id, not by logit, so rounding that swaps two almost equal logits does not change the draw.

    :param logits: (rows, vocabulary); `numbers` (rows,) are in [0, 1).
    :returns: (rows,).
    :raises FloatingPointError: for a NaN or infinite logit.
    """
    best = single(logits).topk(min(k, logits.shape[1]))
    if not bool(torch.isfinite(best.values).all()):
        raise FloatingPointError
    tokens, order = best.indices.sort(dim=1)  # (rows, k)
    sums = best.values.gather(1, order).double().softmax(1).cumsum(1)
    place = (sums <= numbers[:, None] * sums[:, -1:]).sum(1, keepdim=True)
    return tokens.gather(1, place.clamp(max=tokens.shape[1] - 1)).squeeze(1)


class Generator:
    """Generate queries for a batch of passages with an encoder-decoder of transformers."""

    def __init__(self, transformer: Any) -> None:
        from transformers import GenerationConfig

        self.transformer, config = transformer, transformer.config
        # A folder's generation settings, such as no repeated n-grams, are for other tasks.
        transformer.generation_config = GenerationConfig()
        ends = config.eos_token_id
        self.ends: list[int] = [ends] if isinstance(ends, int) else list(ends)
        self.start, self.pad = config.decoder_start_token_id, config.pad_token_id

    def encode(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Encode ``input_ids`` of shape (passages, length); returns (passages, length, width).

        :raises FloatingPointError: for a NaN or infinite state.
        """
        encoder = self.transformer.get_encoder()
        states: Tensor = encoder(**{name: batch[name] for name in ("input_ids", "attention_mask")}).last_hidden_state
        if not bool(torch.isfinite(states).all()):
            raise FloatingPointError
        return states

    def sample(self, batch: Mapping[str, Tensor], numbers: Tensor, k: int) -> Tensor:
        """Sample queries, as docTTTTTquery does (Nogueira & Lin, 2019).

        :param numbers: (passages, queries, steps), in [0, 1).
        :returns: tokens of the shape of `numbers`, padded after the end.
        """
        passages, queries, steps = numbers.shape
        numbers, mask, states = numbers.flatten(0, 1), batch["attention_mask"], self.encode(batch)
        drawn = torch.full(numbers.shape, self.pad, device=states.device)
        logits, cache = self._decode(states, mask, torch.full((passages, 1), self.start, device=states.device))
        # All queries of a passage start from the same token and attend to the same keys and values.
        logits = logits.repeat_interleave(queries, 0)
        cache.batch_repeat_interleave(queries)
        mask = mask.repeat_interleave(queries, 0)
        rows = torch.arange(len(numbers), device=states.device)
        done, ends = torch.zeros_like(rows, dtype=torch.bool), rows.new_tensor(self.ends)
        for step in range(steps):
            tokens = draw(logits, numbers[rows, step], k).masked_fill(done, self.pad)
            drawn[rows, step] = tokens
            done |= torch.isin(tokens, ends)
            left = len(done) - int(done.sum())
            if not left or step + 1 == steps:
                break
            if left <= 0.75 * len(done):
                kept = (~done).nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows, mask, tokens, done = rows[kept], mask[kept], tokens[kept], done[kept]
            # The cache has keys and values of the states, so only the shape of the states is still needed.
            logits, cache = self._decode(states[:1].expand(len(rows), -1, -1), mask, tokens[:, None], cache)
        return drawn.reshape(passages, queries, -1)

    def _decode(self, states: Tensor, mask: Tensor, tokens: Tensor, cache: Any = None) -> tuple[Tensor, Any]:
        """Feed a token per row to the decoder; return the next token's logits, and the cache of keys and values."""
        from transformers.modeling_outputs import BaseModelOutput

        outputs = self.transformer(
            encoder_outputs=BaseModelOutput(states),
            attention_mask=mask,
            decoder_input_ids=tokens,
            past_key_values=cache,
            use_cache=True,
        )
        return outputs.logits[:, -1], outputs.past_key_values

    def search(self, batch: Mapping[str, Tensor], beams: int, queries: int, steps: int) -> Tensor:
        """Find the most probable queries by beam search, best first, as doc2query does.

        :returns: tokens of shape (passages, queries, at most `steps`), padded after the end.
        """
        from transformers import GenerationConfig
        from transformers.modeling_outputs import BaseModelOutput

        tokens: Tensor = self.transformer.generate(
            encoder_outputs=BaseModelOutput(self.encode(batch)),
            attention_mask=batch["attention_mask"],
            generation_config=GenerationConfig(
                max_new_tokens=steps,
                num_beams=beams,
                num_return_sequences=queries,
                do_sample=False,
                early_stopping=False,
                length_penalty=1.0,
                pad_token_id=self.pad,
                eos_token_id=self.ends,
                decoder_start_token_id=self.start,
            ),
        )
        return tokens[:, 1:].reshape(-1, queries, tokens.shape[1] - 1)

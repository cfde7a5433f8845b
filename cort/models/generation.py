"""Queries of an encoder-decoder: drawn from the most probable next tokens, or the most probable ones by beam search.

The numbers that decide a draw are those of a counter-based generator, by seed, passage, query and step. So a query is
the same whatever else is generated with it, as far as rounding leaves the model's logits the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.models.settings import LONGEST_QUERY
from cort.models.transformer import single

# Of a double's significand.
BITS = 53


def numbers_of(seed: int, doc_id: str, queries: int, steps: int) -> npt.NDArray[np.float64]:
    """Numbers from 0 to below 1 of a passage, shape (queries, steps); each the same however many others there are."""
    key = int.from_bytes(hashlib.blake2b(f"{seed}\t{doc_id}".encode(), digest_size=16).digest(), "little")
    raw = np.random.Philox(key=key).random_raw(queries * LONGEST_QUERY).reshape(queries, LONGEST_QUERY)
    return (raw[:, :steps] >> np.uint64(64 - BITS)).astype(np.float64) * 2.0**-BITS


def draw(logits: Tensor, numbers: Tensor, k: int) -> Tensor:
    """Draw a token from the `k` most probable of each row, by their probabilities.

    In the order of their ids, so that two of almost the same logit may change places.

    :param logits: (rows, vocabulary); `numbers` (rows,), from 0 to below 1.
    :returns: (rows,).
    :raises FloatingPointError: a logit is not finite.
    """
    best = single(logits).topk(min(k, logits.shape[1]))
    if not bool(torch.isfinite(best.values).all()):
        raise FloatingPointError
    tokens, order = best.indices.sort(dim=1)  # (rows, k)
    sums = best.values.gather(1, order).double().softmax(1).cumsum(1)
    place = (sums <= numbers[:, None] * sums[:, -1:]).sum(1, keepdim=True)
    return tokens.gather(1, place.clamp(max=tokens.shape[1] - 1)).squeeze(1)


def end_tokens(config: Any) -> list[int]:
    """Tokens that end a query, by the model's config."""
    ends = config.eos_token_id
    return [ends] if isinstance(ends, int) else list(ends)


class Generator:
    """Generates with an encoder-decoder of transformers, for passages of a batch."""

    def __init__(self, transformer: Any) -> None:
        from transformers import GenerationConfig

        self.transformer, config = transformer, transformer.config
        # What a folder advises, such as no word twice, is for other tasks.
        transformer.generation_config = GenerationConfig()
        self.ends = end_tokens(config)
        self.start, self.pad = config.decoder_start_token_id, config.pad_token_id

    def encode(self, batch: Mapping[str, Tensor]) -> Tensor:
        """Encode ``input_ids`` of shape (passages, length); returns (passages, length, width).

        :raises FloatingPointError: a state is not finite.
        """
        encoder = self.transformer.get_encoder()
        states: Tensor = encoder(**{name: batch[name] for name in ("input_ids", "attention_mask")}).last_hidden_state
        if not bool(torch.isfinite(states).all()):
            raise FloatingPointError
        return states

    def sample(self, batch: Mapping[str, Tensor], numbers: Tensor, k: int) -> Tensor:
        """Draw queries, as docTTTTTquery does (Nogueira & Lin, 2019).

        :param numbers: (passages, queries, steps), from 0 to below 1.
        :returns: tokens of the shape of `numbers`, padded after the end.
        """
        from transformers.modeling_outputs import BaseModelOutput

        passages, queries, steps = numbers.shape
        numbers, mask, states = numbers.flatten(0, 1), batch["attention_mask"], self.encode(batch)
        found = torch.full(numbers.shape, self.pad, device=states.device)
        start = torch.full((passages, 1), self.start, device=states.device)
        outputs = self.transformer(
            encoder_outputs=BaseModelOutput(states), attention_mask=mask, decoder_input_ids=start, use_cache=True
        )
        # All queries of a passage begin alike, and look at the same keys and values of it.
        cache, logits = outputs.past_key_values, outputs.logits[:, -1].repeat_interleave(queries, 0)
        cache.batch_repeat_interleave(queries)
        mask = mask.repeat_interleave(queries, 0)
        rows = torch.arange(len(numbers), device=states.device)
        done, ends = torch.zeros_like(rows, dtype=torch.bool), rows.new_tensor(self.ends)
        for step in range(steps):
            tokens = draw(logits, numbers[rows, step], k).masked_fill(done, self.pad)
            found[rows, step] = tokens
            done |= torch.isin(tokens, ends)
            left = len(done) - int(done.sum())
            if not left or step + 1 == steps:
                break
            if left <= 0.75 * len(done):
                kept = (~done).nonzero().squeeze(1)
                cache.batch_select_indices(kept)
                rows, mask, tokens, done = rows[kept], mask[kept], tokens[kept], done[kept]
            # Of the states, whose keys and values are kept, the shape alone is still asked for.
            encoded = BaseModelOutput(states[:1].expand(len(rows), -1, -1))
            outputs = self.transformer(
                encoder_outputs=encoded,
                attention_mask=mask,
                decoder_input_ids=tokens[:, None],
                past_key_values=cache,
                use_cache=True,
            )
            cache, logits = outputs.past_key_values, outputs.logits[:, -1]
        return found.reshape(passages, queries, -1)

    def search(self, batch: Mapping[str, Tensor], beams: int, queries: int, steps: int) -> Tensor:
        """Search for the most probable queries with so many beams, the best first, as doc2query does.

        :returns: tokens of shape (passages, queries, at most `steps`), padded after the end.
        """
        from transformers import GenerationConfig
        from transformers.modeling_outputs import BaseModelOutput

        found: Tensor = self.transformer.generate(
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
        return found[:, 1:].reshape(-1, queries, found.shape[1] - 1)

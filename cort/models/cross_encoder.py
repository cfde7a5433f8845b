"""The cross-encoder: query and passage as one sequence with two segments, one relevance logit (CoRT, section 4.3.1).

On disk: a folder that ``CrossEncoder(folder)`` of sentence-transformers loads, too.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.formats.shards import Tokens
from cort.models.batching import Lengths, Part, Rows, Sequences, framed_pairs, widths_of
from cort.models.building import SCORES, dense, new_transformer, set_tokenizer
from cort.models.modules import TextModel, route
from cort.models.pair_prompt import PairPrompt, divide, render
from cort.models.settings import PairSettings
from cort.models.transformer import (
    LEAST_AFTER_PROMPT,
    check_length,
    forward_apart,
    forward_by_length,
    heads_of,
    in_single_precision,
)
from cort.runtime.errors import input_error


class CrossEncoder(TextModel):
    """Map pairs to relevance logits.

    A linear layer on the state of [CLS] is the head in CoRT, section 4.3.1, and TREC 2020, section 4.2; a classifier of
    transformers has another layer before it, such as BERT's pooler.

    :ivar query_length: tokens that queries are truncated to, special tokens included; `max_length` those of pairs. If
        it is None, as in released models, only pairs are truncated.
    """

    kind = "cross_encoder"

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        module = route(model, "passage")[0]
        if model.num_labels != 1:
            source, found = module.tokenizer.name_or_path, f"a classifier of {model.num_labels} classes"
            raise input_error(source, found, "one logit", "train it again")
        self.template, self.max_length = self.framings["passage"]
        self.prompt: PairPrompt | None = None
        if "message" in module.modality_config:
            source, backend = module.tokenizer.name_or_path, module.tokenizer.backend_tokenizer
            system = (model.prompts or {}).get(model.default_prompt_name or "")
            self.prompt = divide(source, render(source, module, system), backend)
            self.template = self.prompt.frame(backend, replace(self.template, after=()))
        self._generates = module.transformer_task == "text-generation"
        # So that the last token of each row is that of a text.
        self.template = replace(self.template, left=self._generates)
        self.query_length: int | None = module.query_length
        if self.prompt and self.query_length is None:
            # The passage, which is truncated first in a prompt, has room.
            taken = self.template.pair_extra + len(self.template.cut) + LEAST_AFTER_PROMPT
            self.query_length = self.max_length - taken
        self._has_head = module.transformer_task in ("sequence-classification", "text-generation")
        for head in self._heads():
            in_single_precision(head)

    def _heads(self) -> list[nn.Module]:
        """List the layers of a classifier of transformers after its base."""
        return heads_of(self.transformer) if self._has_head else []

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Score ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch,)."""
        if self._generates:
            positions = (batch["attention_mask"].cumsum(1) - 1).clamp(min=0)  # (batch, length)
            batch = {**batch, "logits_to_keep": 1, "position_ids": positions}
        logits: Tensor = self.run(batch)[SCORES]  # (batch, 1)
        return logits.squeeze(-1)

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference: the transformer in `precision`, the head in fp32 to avoid ties."""
        # A head may share its weights with the embeddings.
        for head in self._heads():
            if isinstance(head, nn.Linear):
                head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        super().place(device, precision)

    def transformers_without_heads(self) -> list[nn.Module]:
        """List the part that may run in half precision; scores of a rounded head would tie."""
        return [self.transformer.base_model] if self._has_head else super().transformers_without_heads()

    def check_lengths(self, place: str, folder: str | Path) -> None:
        """Refuse lengths that leave no room for text or exceed the model's positions."""
        template, query = self.template, 1
        if self.query_length is not None:
            check_length(f"{place}query_length", self.query_length, template.query_extra + 1, self.transformer)
            query = self.query_length - template.query_extra
        # A query of full length still leaves one token for the passage.
        shortest = query + template.pair_extra + len(template.cut) + 1
        check_length(f"{place}max_length", self.max_length, shortest, self.transformer)

    def save(self, folder: Path) -> None:
        """Write all files but the model card into a folder."""
        route(self.saved, "passage")[0].query_length = self.query_length
        super().save(folder)
        if self.prompt:
            self.prompt.save(folder, self.template)

    def pairs(self, queries: Tokens, passages: Tokens) -> Pairs:
        """Make pairs of texts that can be scored."""
        return Pairs(queries, passages, self)


@dataclass(frozen=True)
class Pairs:
    """Pairs of queries and passages, each joined to one sequence."""

    queries: Tokens
    passages: Tokens
    #: has `template`, `query_length` and `max_length`
    model: Any
    #: whether pairs that are scored together share encodings of texts
    shared = False
    #: whether the model has convolutions, whose last bits depend on the number of rows
    convolves = False

    def score(self, model: nn.Module, queries: Rows, passages: Rows, device: torch.device) -> Tensor:
        """Score pair i of query row ``queries[i]`` and passage row ``passages[i]``; returns logits (pairs,)."""
        return self.scores(partial(forward_by_length, model, device=device), queries, passages)

    def scores(self, forward: Callable[[Sequences], Tensor], queries: Rows, passages: Rows) -> Tensor:
        """Score pairs with `forward`; returns logits (pairs,)."""
        return forward(self.sequences(queries, passages))

    def order(self, queries: Rows, passages: Rows) -> Rows:
        """Order pairs for `scorer`, so that those of similar length are scored together; ties stay in order."""
        return np.lexsort(self.keys(self.sequences(queries, passages))[::-1])

    def scorer(self, model: nn.Module, device: torch.device) -> Callable[[Rows, Rows], Tensor]:
        """Make a function that scores consecutive pairs in the `order`; on a CPU, no fp32 score depends on others."""

        def score(queries: Rows, passages: Rows) -> Tensor:
            sequences = self.sequences(queries, passages)
            return forward_apart(model, sequences, self.keys(sequences), device, self.convolves)

        return score

    def keys(self, sequences: Sequences) -> list[Lengths]:
        """Return what the shapes of the computation for each pair depend on: its width."""
        return [widths_of(sequences.lengths, self.model.max_length)]

    def sequences(self, queries: Rows, passages: Rows) -> Sequences:
        """Frame the pairs of some rows."""
        sides = (
            Part(self.queries, queries, self.queries.lengths[queries], 0),
            Part(self.passages, passages, self.passages.lengths[passages], 0),
        )
        return self.join(*sides)

    def join(self, queries: Part, passages: Part) -> Sequences:
        """Join whole queries and passages."""
        model = self.model
        return framed_pairs(queries, passages, model.template, model.query_length, model.max_length)

    def passes(self, queries: Rows, passages: Rows) -> list[Lengths]:
        """Return the lengths of the texts in each pass through the model: a single one, with a text per pair."""
        return [self.lengths(queries, passages)]

    def lengths(self, queries: Rows, passages: Rows) -> Lengths:
        """Count the tokens of joined pairs."""
        return self.sequences(queries, passages).lengths


def new_cross_encoder(base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw") -> CrossEncoder:
    """Put a new head of one logit, drawn from `seed`, on a base model."""
    linear = settings.head == "linear"
    module = new_transformer(base_model, True, seed, "feature-extraction" if linear else "sequence-classification")
    import sentence_transformers
    from sentence_transformers.sentence_transformer.modules import Pooling

    set_tokenizer(module, base_model, settings.max_length, 0, cleaning)
    module.query_length = settings.query_length
    modules = [module]
    if linear:
        width = module.get_embedding_dimension()
        modules += [Pooling(width, "cls"), dense(width, 1, seed, True, nn.Identity(), SCORES)]
    saved = sentence_transformers.CrossEncoder(modules=modules, device="cpu", activation_fn=nn.Identity())
    model = CrossEncoder(saved)
    # Not lowered to the model's positions, as the limit of a tokenizer is.
    model.max_length = settings.max_length
    model.check_lengths("", base_model)
    return model.train()

"""The cross-encoder: query and passage as one sequence with two segments, one relevance logit (CoRT, section 4.3.1).

On disk: a transformers sequence-classification folder plus ``reranker.json``; with the linear head, a folder with just
the transformer, plus that layer's file.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Ids, Lengths, Rows, Sequences, frame_pair
from cort.models.loading import load_tensors, load_transformer, own_settings, read_settings
from cort.models.settings import HEAD, PairSettings
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import (
    accepted_inputs,
    check_length,
    count_tokens,
    forward_by_length,
    place,
    single,
)
from cort.system.errors import input_error

CLASSIFIER = "AutoModelForSequenceClassification"


class CrossEncoder(nn.Module):
    """Map pairs to relevance logits, with a classifier of transformers or a linear layer on the state of [CLS].

    The linear layer is the head in CoRT, section 4.3.1, and TREC 2020, section 4.2; a classifier of transformers has
    another layer before it, such as BERT's pooler.
    """

    def __init__(self, classifier: Any, settings: PairSettings) -> None:
        super().__init__()
        self.settings = settings
        self.classifier = classifier
        self.inputs = accepted_inputs(classifier)
        self.head: nn.Linear | None = None
        if settings.head == "linear":
            if getattr(classifier, "pooler", None) is not None:
                classifier.pooler = None
            self.head = nn.Linear(classifier.config.hidden_size, 1)
            return
        for head in classifier.children():
            if head is not classifier.base_model:
                head.register_forward_pre_hook(lambda _, states: tuple(map(single, states)))

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Score ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch,)."""
        outputs = self.classifier(**{name: batch[name] for name in self.inputs})
        logits: Tensor = (
            self.head(single(outputs.last_hidden_state[:, 0])) if self.head else outputs.logits
        )  # (batch, 1)
        return logits.squeeze(-1)

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference: the transformer in `precision`, the head in fp32 to avoid ties."""
        place(self, self.classifier.base_model, device, precision)

    def pairs(self, queries: Tokens, passages: Tokens, template: Template) -> Pairs:
        """Make pairs of texts that can be scored."""
        return Pairs(queries, passages, template, self.settings)

    def parts(self) -> tuple[Any, dict[str, Tensor]]:
        """Split into the transformer, with a classifier's head, and the weights of a linear head."""
        return self.classifier, self.head.state_dict() if self.head else {}


@dataclass(frozen=True)
class Pairs:
    """Pairs of queries and passages, each joined to one sequence."""

    queries: Tokens
    passages: Tokens
    template: Template
    settings: PairSettings
    #: whether pairs that are scored together share encodings of texts
    shared = False

    def score(
        self, model: nn.Module, queries: Rows, passages: Rows, device: torch.device, token_budget: int | None = None
    ) -> Tensor:
        """Score pair i of query row ``queries[i]`` and passage row ``passages[i]``; returns logits (pairs,)."""

        def forward(sequences: Sequences) -> Tensor:
            return forward_by_length(model, sequences, device, token_budget)

        return self.scores(forward, queries, passages)

    def scores(self, forward: Callable[[Sequences], Tensor], queries: Rows, passages: Rows) -> Tensor:
        """Score pairs with `forward`; returns logits (pairs,)."""
        return forward(self.sequences(queries, passages))

    def sequences(self, queries: Rows, passages: Rows) -> Sequences:
        """Frame the pairs of some rows."""

        def frame(row: int) -> Frame:
            return self.join(self.queries[queries[row]], self.passages[passages[row]])

        source = f"{self.queries.path}, {self.passages.path}"
        return Sequences(self.lengths(queries, passages), frame, self.template, source)

    def join(self, query: Ids, passage: Ids) -> Frame:
        """Join a query and a passage."""
        return frame_pair(query, passage, self.template, self.settings.query_length, self.settings.max_length)

    def texts(self, queries: Rows, passages: Rows) -> int:
        """Count the texts that go through the model: one per pair."""
        return len(queries)

    def lengths(self, queries: Rows, passages: Rows) -> Lengths:
        """Count the tokens of joined pairs."""
        query_lengths = np.minimum(self.queries.lengths[queries], self.settings.query_length - self.template.extra)
        total = query_lengths + self.passages.lengths[passages] + self.template.pair_extra
        return np.minimum(total, self.settings.max_length)


def new_cross_encoder(base_model: str | Path, settings: PairSettings, seed: int) -> CrossEncoder:
    """Put a new head of one logit, drawn from `seed`, on a base model.

    A base model that is itself a re-ranker keeps its head and settings.
    """
    if (Path(base_model) / PairSettings.FILE).is_file():
        own_settings(base_model, settings)
        return load_cross_encoder(base_model)[0]
    torch.manual_seed(seed)
    linear = settings.head == "linear"
    classifier = load_transformer(base_model) if linear else load_transformer(base_model, CLASSIFIER, num_labels=1)
    check_lengths("", settings, load_template(base_model, count_tokens(classifier)), classifier)
    torch.manual_seed(seed)
    return CrossEncoder(classifier, settings)


def load_cross_encoder(folder: str | Path) -> tuple[CrossEncoder, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    linear = settings.head == "linear"
    classifier = load_transformer(folder, "AutoModel" if linear else CLASSIFIER, trained=True)
    config: Any = classifier.config
    if config.num_labels != 1 and not linear:
        raise input_error(folder, f"a classifier of {config.num_labels} classes", "one logit", "train it again")
    template = load_template(folder, count_tokens(classifier))
    check_lengths(f"{Path(folder) / PairSettings.FILE}: ", settings, template, classifier)
    model = CrossEncoder(classifier, settings)
    if linear:
        load_tensors(folder, HEAD, model.head, PairSettings)
    return model.eval(), template


def check_lengths(place: str, settings: PairSettings, template: Template, classifier: nn.Module) -> None:
    """Refuse lengths that leave no room for text or exceed the model's positions."""
    check_length(f"{place}query_length", settings.query_length, template.extra + 1, classifier)
    # A query of full length still leaves one token for the passage.
    shortest = settings.query_length + len(template.between) + 1
    check_length(f"{place}max_length", settings.max_length, shortest, classifier)

"""The re-ranker: query and passage as one sequence of two segments, one relevance logit (CoRT, section 4.3.1).

On disk a transformers sequence-classification folder with ``reranker.json`` beside it.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from cort.batching import by_length, frame_pair, pad
from cort.encoder import TOKENIZER_FILES, accepted_inputs, check_length, load_transformer, most_tokens
from cort.errors import input_error
from cort.files import atomic_folder
from cort.formats.tokens import Tokens
from cort.tokenization import Template, load_template

Rows = npt.NDArray[np.int64]
CLASSIFIER = "AutoModelForSequenceClassification"


@dataclass(frozen=True)
class PairSettings:
    """Lengths in tokens, special ones included: of the query alone, and of the whole pair."""

    query_length: int
    max_length: int


class CrossEncoder(nn.Module):
    """Map pairs to relevance logits."""

    def __init__(self, classifier: nn.Module, settings: PairSettings) -> None:
        super().__init__()
        self.settings = settings
        self.classifier = classifier
        self.inputs = accepted_inputs(classifier)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Score ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch,)."""
        logits: Tensor = self.classifier(**{name: batch[name] for name in self.inputs}).logits  # (batch, 1)
        return logits.squeeze(-1)


@dataclass(frozen=True)
class Pairs:
    """Token ids of queries and passages and how to join them."""

    queries: Tokens
    passages: Tokens
    template: Template
    settings: PairSettings

    def score(self, model: nn.Module, queries: Rows, passages: Rows, device: torch.device, token_budget: int) -> Tensor:
        """Score pair i of query row ``queries[i]`` and passage row ``passages[i]``; returns logits (pairs,)."""
        query_lengths = np.minimum(self.queries.lengths[queries], self.settings.query_length - self.template.extra)
        total = query_lengths + self.passages.lengths[passages] + self.template.pair_extra
        parts: list[Tensor] = []
        order: list[npt.NDArray[np.intp]] = []
        for members in by_length(np.minimum(total, self.settings.max_length), token_budget):
            frames = [
                frame_pair(
                    self.queries[queries[row]],
                    self.passages[passages[row]],
                    self.template,
                    self.settings.query_length,
                    self.settings.max_length,
                )
                for row in members
            ]
            batch = {name: tensor.to(device) for name, tensor in pad(frames, self.template.pad).items()}
            parts.append(model(batch))  # (members,)
            order.append(members)
        inverse = np.argsort(np.concatenate(order), kind="stable")
        return torch.cat(parts)[torch.from_numpy(inverse).to(device)]  # (pairs,)


def new_cross_encoder(language_model: str | Path, settings: PairSettings, seed: int) -> CrossEncoder:
    """Put a fresh one-logit classification head, drawn from `seed`, on a language model folder."""
    torch.manual_seed(seed)
    classifier = load_transformer(language_model, CLASSIFIER, num_labels=1)
    template, longest = load_template(language_model), most_tokens(classifier)
    check_length("query_length", settings.query_length, template.extra + 1, longest)
    # A query of full length still leaves one token for the passage.
    check_length("max_length", settings.max_length, settings.query_length + len(template.between) + 1, longest)
    return CrossEncoder(classifier, settings)


def save_cross_encoder(model: CrossEncoder, tokenizer_folder: str | Path, folder: str | Path) -> None:
    """Write the model folder, whole or not at all."""
    with atomic_folder(folder) as temporary:
        classifier: Any = model.classifier
        classifier.save_pretrained(temporary)
        settings = json.dumps(asdict(model.settings), indent=2) + "\n"
        (temporary / "reranker.json").write_text(settings, encoding="utf-8")
        for name in TOKENIZER_FILES:
            shutil.copyfile(Path(tokenizer_folder) / name, temporary / name)


def load_cross_encoder(folder: str | Path) -> tuple[CrossEncoder, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    try:
        settings = PairSettings(**json.loads((Path(folder) / "reranker.json").read_text(encoding="utf-8")))
    except (FileNotFoundError, TypeError, json.JSONDecodeError) as error:
        raise input_error(
            folder, f"no re-ranker ({error})", "a folder that `train_reranker` wrote", "name it, or train again"
        ) from error
    return CrossEncoder(load_transformer(folder, CLASSIFIER), settings).eval(), load_template(folder)

"""Kernel pooling: cosines of the word vectors of query and passage, counted softly by Gaussian kernels.

KNRM (Xiong et al., SIGIR 2017) compares words; Conv-KNRM (Dai et al., WSDM 2018) also n-grams, each length of the query
with each of the passage. A layer weighs the logarithms of the counts. The papers' tanh after it, which changes no
ranking, is left out: the losses here are of logits.

On disk config.json of the base model, whose tokenizer it has, ``reranker.json`` and its own weights.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.tokens import Tokens
from cort.models.batching import Frame, Ids
from cort.models.cross_encoder import Pairs
from cort.models.loading import load_tensors, load_transformer, read_settings, wrong_model
from cort.models.settings import PairSettings
from cort.models.tokenizer import Template, load_template
from cort.models.transformer import count_tokens
from cort.system.errors import input_error

Rows = npt.NDArray[np.int64]
WEIGHTS = "model.safetensors"
QUERY, PASSAGE = 0, 1
# Equal words, then ten bins of cosines.
MEANS = (1.0, *(round(0.9 - 0.2 * step, 1) for step in range(10)))
WIDTHS = (0.001, *(0.1,) * 10)
# As in the authors' code: the least count, and what the logarithms are multiplied by.
LEAST, SCALE = 1e-10, 0.01
LONGEST_NGRAM = 3


class KernelPooling(nn.Module):
    """Map pairs to relevance logits."""

    def __init__(self, vectors: Tensor, settings: PairSettings, config: Any = None) -> None:
        super().__init__()
        self.settings = settings
        self._config = config
        self.vectors = nn.Embedding(vectors.shape[0], vectors.shape[1], _weight=vectors)
        width = vectors.shape[1]
        lengths = range(1, LONGEST_NGRAM + 1) if settings.kind == "conv_knrm" else ()
        self.ngrams = nn.ModuleList(nn.Conv1d(width, settings.filters, length) for length in lengths)
        self.weigh = nn.Linear(len(MEANS) * max(len(self.ngrams), 1) ** 2, 1)
        self.means: Tensor
        self.widths: Tensor
        self.register_buffer("means", torch.tensor(MEANS), persistent=False)
        self.register_buffer("widths", torch.tensor(WIDTHS), persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Score ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch,)."""
        real, segments = batch["attention_mask"].bool(), batch["token_type_ids"]
        words = self.vectors(batch["input_ids"])  # (batch, length, e)
        # Queries stand first: columns without a word of any query, or of any passage, need not be compared.
        sizes = (real & (segments == QUERY)).sum(1)
        parts = {
            QUERY: slice(0, max(int(sizes.max()), 1)),
            PASSAGE: slice(min(int(sizes.min()), words.shape[1] - 1), None),
        }
        texts = [(words[:, part], (real & (segments == segment))[:, part]) for segment, part in parts.items()]
        queries, passages = ([(view, counts) for view in self._views(vectors, counts)] for vectors, counts in texts)
        pooled = [
            pool_kernels(*query, *passage, self.means, self.widths) for query, passage in product(queries, passages)
        ]
        logits: Tensor = self.weigh(torch.cat(pooled, dim=-1))  # (batch, 1)
        return logits.squeeze(-1)

    def _views(self, words: Tensor, counts: Tensor) -> list[Tensor]:
        """Vectors of the words, or of the n-grams that begin at each of them."""
        if not len(self.ngrams):
            return [words]
        inside = (words * counts.unsqueeze(-1)).mT  # (batch, e, length)
        padded = (functional.pad(inside, (0, length)) for length in range(len(self.ngrams)))
        return [functional.relu(layer(one)).mT for layer, one in zip(self.ngrams, padded, strict=True)]

    def place(self, device: torch.device, _: str) -> None:
        """Move to a device to be used; it is small, and stays in single precision."""
        self.to(device)

    def pairs(self, queries: Tokens, passages: Tokens, template: Template) -> WordPairs:
        """Pairs of texts to be scored."""
        return WordPairs(queries, passages, template, self.settings)

    def parts(self) -> tuple[Any, dict[str, Tensor]]:
        """Take apart: what writes config.json and all weights, and no others."""
        return self, {}

    def save_pretrained(self, folder: Path) -> None:
        """Write the config of the base model and the weights."""
        self._config.save_pretrained(folder)
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / WEIGHTS)


def pool_kernels(
    queries: Tensor, query_counts: Tensor, passages: Tensor, passage_counts: Tensor, means: Tensor, widths: Tensor
) -> Tensor:
    """Sum, over the words of each query, the logarithm of how often a kernel finds it in the passage.

    :param queries: (pairs, m, e), of which those count that are set in (pairs, m); passages (pairs, n, e) likewise.
    :param means: (kernels,), cosines at which the kernels are 1; `widths` their standard deviations.
    :returns: (pairs, kernels).
    """
    queries, passages = (functional.normalize(one, dim=-1) for one in (queries, passages))
    cosines = queries @ passages.mT  # (pairs, m, n)
    kernels = []
    for mean, width in zip(means, widths, strict=True):
        found = torch.exp(-((cosines - mean) ** 2) / (2 * width**2)) * passage_counts.unsqueeze(1)
        logs = SCALE * torch.log(found.sum(-1).clamp(min=LEAST))  # (pairs, m)
        kernels.append((logs * query_counts).sum(-1))
    return torch.stack(kernels, dim=-1)


class WordPairs(Pairs):
    """Token ids of queries and passages, one after the other, without special tokens."""

    def join(self, query: Ids, passage: Ids) -> Frame:
        """Put a query and a passage, cut to their lengths, one after the other."""
        query, passage = query[: self.settings.query_length], passage[: self.settings.max_length]
        ids = np.concatenate([query, passage]).astype(np.int64)
        segments = np.repeat([QUERY, PASSAGE], [len(query), len(passage)])
        # Of two empty texts there is a token of neither.
        return (ids, segments) if len(ids) else (np.array([self.template.pad]), np.array([PASSAGE + 1]))

    def lengths(self, queries: Rows, passages: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens of pairs."""
        query_lengths = np.minimum(self.queries.lengths[queries], self.settings.query_length)
        total: Rows = query_lengths + np.minimum(self.passages.lengths[passages], self.settings.max_length)
        return np.maximum(total, 1)


def new_kernel_pooling(base_model: str | Path, settings: PairSettings, seed: int) -> KernelPooling:
    """Take the token embeddings of a base model folder for word vectors, or draw them, and all layers, from `seed`."""
    transformer: Any = load_transformer(base_model)
    for name in ("query_length", "max_length", "dimension", "filters"):
        if getattr(settings, name) < 1:
            raise input_error(f"--{name.replace('_', '-')}", str(getattr(settings, name)), "more than 0", "fix it")
    torch.manual_seed(seed)
    vectors = transformer.get_input_embeddings().weight.detach().clone()
    if settings.word_vectors == "new":
        vectors = torch.randn(count_tokens(transformer), settings.dimension)
    return KernelPooling(vectors, replace(settings, dimension=vectors.shape[1]), transformer.config)


def load_kernel_pooling(folder: str | Path) -> tuple[KernelPooling, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    try:
        with safe_open(Path(folder) / WEIGHTS, "pt") as file:
            vocabulary = file.get_slice("vectors.weight").get_shape()[0]
    except (OSError, SafetensorError, IndexError) as error:
        raise wrong_model(folder, PairSettings, error) from error
    model = KernelPooling(torch.empty(vocabulary, settings.dimension), settings)
    load_tensors(folder, WEIGHTS, model, PairSettings)
    return model.eval(), load_template(folder, vocabulary)

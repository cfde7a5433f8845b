"""Kernel pooling: Gaussian kernels make soft counts of the cosines between word vectors of query and passage.

KNRM (Xiong et al., SIGIR 2017) compares words; Conv-KNRM (Dai et al., WSDM 2018) also compares n-grams of all lengths.
A linear layer combines the logarithms of the counts. The papers apply tanh to its output, which is omitted here: the
losses expect logits, and tanh does not change rankings.

On disk: the tokenizer of the base model, ``reranker.json`` and weights, as sentence-transformers has no such model.
"""

from __future__ import annotations

import shutil
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.artifacts import read_artifact, write_artifact
from cort.formats.shards import Tokens
from cort.models.batching import Lengths, Part, Sequences, constant, widths_of
from cort.models.cross_encoder import Pairs
from cort.models.layout import tokenizer_folder
from cort.models.loading import load_transformer
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_template

WEIGHTS = "model.safetensors"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json")
QUERY_SEGMENT, PASSAGE_SEGMENT = 0, 1
# One kernel for exact matches, and ten for bins of cosines.
MEANS = (1.0, *(round(0.9 - 0.2 * step, 1) for step in range(10)))
WIDTHS = (0.001, *(0.1,) * 10)
# As in the authors' code: the minimum count, and the factor of the logarithms.
LEAST, SCALE = 1e-10, 0.01
LONGEST_NGRAM = 3


class KernelPooling(nn.Module):
    """Map pairs to relevance logits."""

    def __init__(self, vectors: Tensor, settings: PairSettings, base_model: str | Path) -> None:
        super().__init__()
        # On GPUs, torch rounds the factors of convolutions to TF32 unless told otherwise, backward passes, too.
        torch.backends.cudnn.allow_tf32 = False
        self.settings, self.kind, self._base_model = settings, settings.kind, base_model
        self.template = load_template(base_model, vectors.shape[0])
        self.query_length, self.max_length = settings.query_length, settings.max_length
        self.vectors = nn.Embedding(vectors.shape[0], vectors.shape[1], _weight=vectors)
        width = vectors.shape[1]
        lengths = range(1, LONGEST_NGRAM + 1) if settings.kind == "conv_knrm" else ()
        self.ngrams = nn.ModuleList(nn.Conv1d(width, settings.filters, length) for length in lengths)
        self.weigh = nn.Linear(len(MEANS) * max(len(self.ngrams), 1) ** 2, 1)
        self.means: Tensor
        self.widths: Tensor
        self.register_buffer("means", torch.tensor(MEANS), persistent=False)
        self.register_buffer("widths", torch.tensor(WIDTHS), persistent=False)

    @classmethod
    def load(cls, folder: str | Path, _: str = "fp32") -> KernelPooling:
        """Load a model folder in evaluation mode, always in single precision."""
        weights = load_file(Path(folder) / WEIGHTS)
        settings = read_artifact(Path(folder) / PairSettings.FILE, PairSettings)
        model = cls(torch.empty_like(weights["vectors.weight"]), settings, folder)
        model.load_state_dict(weights)
        return model.eval()

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Score ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length); returns (batch,)."""
        mask, segments = batch["attention_mask"].bool(), batch["token_type_ids"]
        words = self.vectors(batch["input_ids"])  # (batch, length, e)
        in_query, in_passage = mask & (segments == QUERY_SEGMENT), mask & (segments == PASSAGE_SEGMENT)
        # Queries come first; columns without words of any query, or of any passage, need not be compared.
        sizes = in_query.sum(1)
        first, second = slice(0, max(int(sizes.max()), 1)), slice(min(int(sizes.min()), words.shape[1] - 1), None)
        queries, passages = (
            [(view, counts[:, part]) for view in self._views(words[:, part], counts[:, part])]
            for counts, part in ((in_query, first), (in_passage, second))
        )
        pooled = [
            pool_kernels(*query, *passage, self.means, self.widths) for query, passage in product(queries, passages)
        ]
        logits: Tensor = self.weigh(torch.cat(pooled, dim=-1))  # (batch, 1)
        return logits.squeeze(-1)

    def _views(self, words: Tensor, counts: Tensor) -> list[Tensor]:
        """Compute the vectors of words, or of the n-grams of each length that begin at each word."""
        if not len(self.ngrams):
            return [words]
        inside = (words * counts.unsqueeze(-1)).mT  # (batch, e, length)
        return [
            functional.relu(layer(functional.pad(inside, (0, missing)))).mT for missing, layer in enumerate(self.ngrams)
        ]

    def place(self, device: torch.device, _: str) -> None:
        """Move to a device for inference; the model is small and stays in single precision."""
        self.to(device)

    def pairs(self, queries: Tokens, passages: Tokens) -> WordPairs:
        """Make pairs of texts that can be scored."""
        return WordPairs(queries, passages, self)

    def save(self, folder: Path) -> None:
        """Write all files but the model card into a folder."""
        for name in TOKENIZER_FILES:
            shutil.copyfile(tokenizer_folder(self._base_model) / name, folder / name)
        write_artifact(folder / PairSettings.FILE, self.settings.model_dump())
        save_file({name: tensor.contiguous() for name, tensor in self.state_dict().items()}, folder / WEIGHTS)


def pool_kernels(
    queries: Tensor, query_counts: Tensor, passages: Tensor, passage_counts: Tensor, means: Tensor, widths: Tensor
) -> Tensor:
    """Sum over query words: the logarithm of each kernel's soft count of the word in the passage.

    :param queries: (pairs, m, e); `query_counts` (pairs, m) marks words that count; likewise passages (pairs, n, e).
    :param means: (kernels,), the cosines at which kernels are 1; `widths` are their standard deviations.
    :returns: (pairs, kernels).
    """
    cosines = functional.normalize(queries, dim=-1) @ functional.normalize(passages, dim=-1).mT  # (pairs, m, n)
    kernels = []
    for mean, width in zip(means, widths, strict=True):
        matches = torch.exp(-((cosines - mean) ** 2) / (2 * width**2)) * passage_counts.unsqueeze(1)
        logs = SCALE * torch.log(matches.sum(-1).clamp(min=LEAST))  # (pairs, m)
        kernels.append((logs * query_counts).sum(-1))
    return torch.stack(kernels, dim=-1)


class WordPairs(Pairs):
    """Pairs of queries and passages, concatenated without special tokens."""

    convolves = True

    def keys(self, sequences: Sequences) -> list[Lengths]:
        """Return what shapes depend on: the width, and where the passage begins."""
        longest = self.model.query_length + self.model.max_length
        return [widths_of(sequences.lengths, longest), sequences.parts[0].counts]

    def join(self, queries: Part, passages: Part) -> Sequences:
        """Concatenate queries and passages, each truncated to its limit."""
        query, passage = (
            part._replace(counts=np.minimum(part.counts, most), segment=segment)
            for part, most, segment in (
                (queries, self.model.query_length, QUERY_SEGMENT),
                (passages, self.model.max_length, PASSAGE_SEGMENT),
            )
        )
        template, empty = self.model.template, (query.counts + passage.counts == 0).astype(np.int64)
        # Two empty texts become a token that belongs to neither.
        return Sequences((query, passage, constant((template.pad,), empty, PASSAGE_SEGMENT + 1)), template)


def new_kernel_pooling(
    base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw"
) -> KernelPooling:
    """Use the token embeddings of a base model as word vectors; all layers are drawn from `seed`."""
    transformer: Any = load_transformer(base_model)
    torch.manual_seed(seed)
    return KernelPooling(transformer.get_input_embeddings().weight.detach().clone(), settings, base_model)

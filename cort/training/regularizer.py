"""FLOPS regularisation, which makes the vectors of a sparse encoder sparse."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from cort.runtime.options import options_class
from cort.settings.models import Sparsity


def flops(vectors: Tensor) -> Tensor:
    """Sum up the squared mean weight of each token (Paria et al., 2020): (..., texts, vocabulary) gives (...)."""
    return vectors.mean(-2).square().sum(-1)


@options_class
class Regularizer(Sparsity):
    """The FLOPS of queries and passages, times weights that first grow quadratically (Formal et al., 2021)."""

    def growth(self, progress: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
        """Return the part of the weights at a `progress` from 0 to 1 of the training."""
        share = self.flops_warmup
        return np.minimum(progress / share, 1) ** 2 if share else np.ones_like(progress)

    def __call__(self, queries: Tensor, passages: Tensor, progress: npt.NDArray[np.floating]) -> Tensor:
        """Compute the penalty of each mini-batch, (mini-batches,).

        :param queries: (mini-batches, n, vocabulary); `passages` (mini-batches, 2n, vocabulary).
        :param progress: of each mini-batch, (mini-batches,).
        """
        penalty = self.query_flops * flops(queries) + self.passage_flops * flops(passages)
        return penalty * torch.from_numpy(self.growth(progress)).to(penalty)

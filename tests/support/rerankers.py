"""What re-rankers of every kind have in common."""

import json

import numpy as np
import torch

from cort.models.rerankers import load_reranker, save_reranker


def check_that_it_is_kept(model, pairs, base_model, folder):
    """Write a model and read it again: its scores are the same; what its settings file says."""
    save_reranker(model, base_model, folder)
    loaded, template = load_reranker(folder)
    again = loaded.pairs(pairs.queries, pairs.passages, template)
    rows = np.arange(6), np.arange(6)
    device = torch.device("cpu")
    with torch.inference_mode():
        assert torch.equal(pairs.score(model, *rows, device), again.score(loaded, *rows, device))
    return json.loads((folder / "reranker.json").read_text())

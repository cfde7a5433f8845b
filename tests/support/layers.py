"""Architectures whose layers are fused on CPUs and read packed sequences on GPUs, and batches for them."""

import torch

#: settings of small models
TYPES = {"bert": {}, "albert": {"embedding_size": 16}, "electra": {"embedding_size": 16}, "roberta": {}}


def batch_of(*lengths):
    """Make a padded batch of random tokens."""
    ids = torch.randint(5, 160, (len(lengths), max(lengths)), generator=torch.Generator().manual_seed(1))
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids, "attention_mask": mask, "token_type_ids": torch.zeros_like(ids)}

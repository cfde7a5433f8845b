"""Settings of encoders and re-rankers, in model folders and on command lines; imports no torch."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

from cort.settings.fields import as_key
from cort.settings.models import Representation, Scoring

#: A fixed revision of a model on a hub: a commit, or a pull request with the beginning of its commit, but no branch.
#: Hubs offer safetensors conversions of pickled models as pull requests.
REVISION = re.compile(r"[0-9a-f]{40}|refs/pr/[0-9]+@[0-9a-f]{7,40}")

#: what to do about a wrong file of a model, downloaded or not
FIX = "correct it, or download or build the model again"

#: tokens of a predicted query, including the one that ends it
LONGEST_QUERY = 512

#: settings that only these kinds of re-rankers have; all other settings are shared
OF_KIND = {
    "cross_encoder": ("head",),
    "late_interaction": ("dimension", "similarity", "term_weights", "fill_queries", "skip_punctuation", "ivfpq"),
    "knrm": (),
    "conv_knrm": ("filters",),
    "monot5": (),
    "rankt5": (),
}


@dataclass(frozen=True)
class EncoderSettings(Representation):
    """Settings of a new encoder; lengths count special tokens. The defaults are the paper's."""


@dataclass(frozen=True)
class PairSettings(Scoring):
    """Settings of a re-ranker: its kind, the lengths of its input, and settings of some kinds (`OF_KIND`)."""

    #: file of the settings in the folder of a model that sentence-transformers does not have
    FILE: ClassVar = "reranker.json"

    #: any entry of the registry
    kind: str = as_key(Scoring, "kind", "of re-ranker, one of `cort.models.rerankers`")  # type: ignore[assignment]

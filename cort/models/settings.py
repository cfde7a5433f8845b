"""Settings of encoders and re-rankers, in model folders and on command lines; imports no torch."""

from __future__ import annotations

import re
from typing import ClassVar

from cort.config.models import Filters, Head, Representation, Scored, TokenSettings
from cort.runtime.sections import Text

#: A fixed revision of a model on a hub: a commit, or a pull request with the beginning of its commit, but no branch.
#: Hubs offer safetensors conversions of pickled models as pull requests.
REVISION = re.compile(r"[0-9a-f]{40}|refs/pr/[0-9]+@[0-9a-f]{7,40}")

#: what to do about a wrong file of a model, downloaded or not
FIX = "correct it, or download or build the model again"


class EncoderSettings(Representation):
    """Settings of a new encoder; lengths count special tokens. The defaults are the paper's."""


class PairSettings(Scored, Head, TokenSettings, Filters):
    """Settings of a re-ranker: its kind, the lengths of its input, and settings of some kinds."""

    #: file of the settings in the folder of a model that sentence-transformers does not have
    FILE: ClassVar = "reranker.json"

    kind: Text = "cross_encoder"
    """Kind of re-ranker, one of `cort.models.rerankers`."""

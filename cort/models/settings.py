"""What makes a transformer an encoder or a re-ranker, as a model folder and a command line say it; no torch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal, TypeAlias

from cort.system.options import optional

#: What names one state of a hub's model: a commit, no branch. Or a pull request with the beginning of its commit: where
#: only pickles are published, the hub's own conversion of them is one.
REVISION = re.compile(r"[0-9a-f]{40}|refs/pr/[0-9]+@[0-9a-f]{7,40}")

#: what to do about a wrong file of a model, whether it was downloaded or made here
FIX = "correct it, or download or build the model again"

#: of a re-ranker's folder: weights of what follows the transformer, if that has no place for them
HEAD = "head.safetensors"

#: tokens of a generated query, its end included
LONGEST_QUERY = 512

#: settings of a re-ranker that its kind alone takes; those of all others are common
OF_KIND = {
    "cross_encoder": ("head",),
    "late_interaction": ("dimension", "similarity", "term_weights", "fill_queries", "skip_punctuation", "ivfpq"),
    "knrm": ("dimension", "word_vectors"),
    "conv_knrm": ("dimension", "word_vectors", "filters"),
}

Precision: TypeAlias = Literal["fp32", "bf16", "fp16"]
Pooling: TypeAlias = Literal["cls", "mean", "last"]
Similarity: TypeAlias = Literal["angular", "cosine", "inner_product"]


def ref_of(revision: str) -> str:
    """Return what a hub knows a revision by: a commit, or a pull request alone."""
    return revision.partition("@")[0]


@dataclass(frozen=True)
class EncoderSettings:
    """What makes a transformer a CoRT encoder; lengths count special tokens. The defaults are the paper's."""

    #: of a model folder: file of the settings, what the model is called, and which stage makes it
    FILE, MODEL, STAGE = "cort.json", "CoRT encoder", "train"
    #: what every model folder says; for the other settings, models older than them have the default
    WRITTEN: ClassVar = ("pooling", "dimension", "query_length", "passage_length")

    pooling: Pooling = optional("cls")
    dimension: int = optional(768, "e, the size of the vectors")
    query_length: int = optional(512, "tokens, special ones included")
    passage_length: int = optional(512, "tokens, special ones included")
    similarity: Similarity = optional("angular")
    projection: bool = optional(True, "False: vectors are the model's own states")
    #: segment ids (section 3.2): CoRT tells the two kinds of text apart by their segment embedding alone
    query_segment: Literal[0, 1] = optional(1)
    passage_segment: Literal[0, 1] = optional(0)
    activation: Literal["tanh", "identity"] = optional("tanh", "of the projection")
    query_prompt: str = optional("", "put before every query; the tokens are of both together")
    passage_prompt: str = optional("", "put before every passage")

    @property
    def unit_length(self) -> bool:
        """Whether vectors are stored with length 1: angle and cosine do not see their length."""
        return self.similarity != "inner_product"

    def saved(self) -> dict[str, Any]:
        """Return what a model folder says."""
        return asdict(self)


@dataclass(frozen=True)
class PairSettings:
    """What makes a transformer a re-ranker: its kind, the lengths of its input; the rest is of some kinds alone."""

    FILE, MODEL, STAGE = "reranker.json", "re-ranker", "train_reranker"
    WRITTEN: ClassVar = ("query_length", "max_length")

    query_length: int = optional(64, "tokens of the query, special ones included")
    max_length: int = optional(
        512, "tokens of the pair, or of the passage where it is read apart, special ones included"
    )
    kind: str = optional("cross_encoder", "of re-ranker, as `cort.models.rerankers` names them")
    head: Literal["classification", "linear"] = optional("classification", "of a cross-encoder; linear: on [CLS] alone")
    dimension: int = optional(64, "of token vectors, or of new word vectors")
    similarity: Literal["cosine", "dot", "l2"] = optional("cosine", "of token vectors; all but dot at length 1")
    term_weights: bool = optional(False, "learn a weight of each query token")
    fill_queries: bool = optional(False, "with mask tokens up to their length, as ColBERT does")
    skip_punctuation: bool = optional(False, "leave out punctuation of passages")
    word_vectors: Literal["base_model", "new"] = optional("base_model", "kernel pooling: its embeddings, or drawn ones")
    filters: int = optional(128, "of the convolution of each n-gram length")

    def saved(self) -> dict[str, Any]:
        """Return what a model folder says: nothing of another kind of re-ranker, and no head but another than usual."""
        of_others = {name for names in OF_KIND.values() for name in names}.difference(OF_KIND.get(self.kind, ()))
        of_others |= {"head"} if self.head == "classification" else set()
        return {name: value for name, value in asdict(self).items() if name not in of_others}

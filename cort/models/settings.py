"""Settings of encoders and re-rankers, in model folders and on command lines; imports no torch."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from cort.settings.fields import Precision as Precision
from cort.settings.models import Encoder, Pooling, Reranker, Similarity
from cort.system.options import optional

#: A fixed revision of a model on a hub: a commit, not a branch; or a pull request with the beginning of its commit. A
#: hub offers its safetensors conversion of a pickled model as a pull request.
REVISION = re.compile(r"[0-9a-f]{40}|refs/pr/[0-9]+@[0-9a-f]{7,40}")

#: what to do about a wrong file of a model, downloaded or not
FIX = "correct it, or download or build the model again"

#: file of a re-ranker's layers after the transformer, unless the transformer's own file has them
HEAD = "head.safetensors"

#: tokens of a predicted query, including the one that ends it
LONGEST_QUERY = 512

#: settings of a re-ranker that only these kinds have; all other settings are common
OF_KIND = {
    "cross_encoder": ("head",),
    "late_interaction": ("dimension", "similarity", "term_weights", "fill_queries", "skip_punctuation", "ivfpq"),
    "knrm": ("dimension", "word_vectors"),
    "conv_knrm": ("dimension", "word_vectors", "filters"),
}


def ref_of(revision: str) -> str:
    """Return a revision as a hub knows it: a commit, or a pull request without its commit."""
    return revision.partition("@")[0]


@dataclass(frozen=True)
class EncoderSettings:
    """Settings of a CoRT encoder; lengths count special tokens. The defaults are the paper's."""

    #: in a model folder: file of the settings; in messages: name of the model and of the stage that makes it
    FILE, MODEL, STAGE = "cort.json", "CoRT encoder", "train"
    #: settings that every model folder has; older models lack the others and use their defaults
    WRITTEN: ClassVar = ("pooling", "dimension", "query_length", "passage_length")

    pooling: Pooling = optional(Encoder.pooling)
    dimension: int = optional(Encoder.dimension, "size of the vectors")
    query_length: int = optional(Encoder.query_length, "tokens, special tokens included")
    passage_length: int = optional(Encoder.passage_length, "tokens, special tokens included")
    similarity: Similarity = optional(Encoder.similarity)
    projection: bool = optional(Encoder.projection, "False: vectors are the transformer's states")
    #: segment ids (section 3.2): CoRT tells queries from passages only by their segment embedding
    query_segment: Literal[0, 1] = optional(Encoder.query_segment)
    passage_segment: Literal[0, 1] = optional(Encoder.passage_segment)
    activation: Literal["tanh", "identity"] = optional("tanh", "of the projection")
    query_prompt: str = optional("", "prepended to every query before tokenization")
    passage_prompt: str = optional("", "prepended to every passage")

    @property
    def unit_length(self) -> bool:
        """Whether vectors are normalized to length 1, which changes neither angle nor cosine."""
        return self.similarity != "inner_product"

    def saved(self) -> dict[str, Any]:
        """Return the settings as a model folder has them."""
        return asdict(self)


@dataclass(frozen=True)
class PairSettings:
    """Settings of a re-ranker: its kind, the lengths of its input, and settings of some kinds (`OF_KIND`)."""

    FILE, MODEL, STAGE = "reranker.json", "re-ranker", "train_reranker"
    WRITTEN: ClassVar = ("query_length", "max_length")

    query_length: int = optional(Reranker.query_length, "tokens of the query, special tokens included")
    max_length: int = optional(
        Reranker.max_length, "tokens of the pair, or of a separate passage, special tokens included"
    )
    kind: str = optional(Reranker.kind, "of re-ranker, one of `cort.models.rerankers`")
    head: Literal["classification", "linear"] = optional(Reranker.head, "of a cross-encoder; linear: a layer on [CLS]")
    dimension: int = optional(Reranker.dimension, "of token vectors, or of new word vectors")
    similarity: Literal["cosine", "dot", "l2"] = optional(
        Reranker.similarity, "of token vectors, which all but dot normalize"
    )
    term_weights: bool = optional(Reranker.term_weights, "learn a weight for each query token")
    fill_queries: bool = optional(Reranker.fill_queries, "with mask tokens up to the maximum length, as ColBERT does")
    skip_punctuation: bool = optional(Reranker.skip_punctuation, "ignore punctuation in passages")
    word_vectors: Literal["base_model", "new"] = optional(
        Reranker.word_vectors, "kernel pooling: the base model's, or new ones"
    )
    filters: int = optional(Reranker.filters, "of the convolution for each n-gram length")

    def saved(self) -> dict[str, Any]:
        """Return the settings as a model folder has them: without those of other kinds, and without the usual head."""
        of_others = {name for names in OF_KIND.values() for name in names}.difference(OF_KIND.get(self.kind, ()))
        of_others |= {"head"} if self.head == "classification" else set()
        return {name: value for name, value in asdict(self).items() if name not in of_others}

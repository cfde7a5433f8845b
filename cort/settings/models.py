"""Base models, encoders and re-rankers, their indexes and training examples."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, TypeAlias

from cort.settings.fields import Cleaning, Precision, Released, section, setting
from cort.settings.training import Training

# The stage that builds the model checks what transformers takes; no number may be large enough to fill the memory.
ARCHITECTURE = {"required": ["model_type"], "patternProperties": {"": {"minimum": -1_000_000, "maximum": 1_000_000}}}

Pooling: TypeAlias = Literal["cls", "mean", "last"]
Similarity: TypeAlias = Literal["angular", "cosine", "inner_product"]


@section
class BaseModel:
    """A transformer with its tokenizer, from which training starts."""

    pretrained: str | None = None
    """Hub name or local folder (safetensors only)."""
    revision: str | None = None
    """Commit of the hub repository, all 40 digits, or `refs/pr/N@COMMIT`, a pull request and the beginning of its
    commit, which is checked; required with a hub name. A branch or a pull request may move."""
    architecture: dict[str, Any] | None = setting(None, also=ARCHITECTURE)
    """Random weights instead: `model_type` and further settings of a transformers configuration."""
    vocabulary_size: int = setting(16000, ge=100, le=1_000_000)
    """Size of the WordPiece vocabulary trained on the passages, with `architecture`."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages (with what is appended) and queries: none (`raw`), wrongly decoded characters fixed
    (`fixed`), or the filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""


@section
class Examples:
    """Where training examples come from."""

    system: str | tuple[str, ...] = setting("bm25", least=1)
    """System whose run of the training queries provides the negatives, the one to complement; of a list, all their
    results on these ranks together."""
    last_rank: int = setting(100, ge=1, le=100_000)
    """Last rank negatives are taken from."""
    minimum_results: int = setting(10, ge=1, le=100_000)
    """Training queries with fewer results are dropped, and counted."""
    maximum_queries: int = setting(0, ge=0, le=1_000_000_000)
    """Train on this many queries drawn at random; 0 for all."""
    file: str | None = None
    """Train on these released triples instead, `.tsv` or `.txt`, plain or `.gz`: a line is `query TAB positive TAB
    negative`, all ids (MS MARCO's `qidpidtriples.*.tsv`) or all texts (`triples.train.small.tsv`). An epoch is one pass
    over them, and `training.epochs` is 1 unless it is set. The keys above then are of the validation alone."""
    limit: int = setting(0, ge=0, le=1_000_000_000)
    """With `file`, take its first lines alone; 0 for all."""
    sample: int = setting(0, ge=0, le=1_000_000_000)
    """With `file`, train on this many of the triples taken, drawn at random; 0 for all."""
    shuffle: bool = True
    """With `file`, reshuffle the triples for every epoch; without, all epochs have the order of the file, which is
    that of the queries in `qidpidtriples.train.full.2.tsv`."""
    unknown_ids: Literal["refuse", "drop"] = "refuse"
    """With `file`, what happens to a triple whose query is none of `splits.train`, or whose passages are not in the
    collection: `refuse` ends the build at its line; `drop` leaves it out and counts it, which is what held-out queries
    and sampled collections need."""


@section
class Triples(Examples):
    """Where an encoder's training triples come from."""

    first_rank: int = setting(8, ge=1, le=100_000)
    """First rank negatives are taken from."""


@section
class Onng:
    """The graph index over the encoder's vectors, built when a system asks for it."""

    edges: int = setting(100, ge=1, le=10_000)
    """Edges per node of the ANNG."""
    outgoing: int = setting(10, ge=1, le=10_000)
    """Outgoing edges kept per node of the ONNG."""
    incoming: int = setting(120, ge=1, le=10_000)
    """Incoming edges kept per node of the ONNG."""


@section
class Hnsw:
    """The HNSW index over the encoder's vectors, built when a system asks for it."""

    M: int = setting(16, ge=2, le=1000)
    """Edges per node and layer (M), twice as many on the lowest."""
    ef_construction: int = setting(200, ge=1, le=100_000)
    """Width of the search for these edges during construction."""


@section
class Trainable(Released):
    """What encoders and re-rankers have in common."""

    base_model: str | None = None
    """Name under `base_models`; either this or `pretrained`."""
    recipe: Literal["paper", "small"] = "paper"
    """Set of default values for training: `paper`, those of this reference, or `small`, for collections with thousands
    of training queries. Keys that are set here win; the values are listed below."""
    checkpoint: Literal["best", "last"] = "best"
    """Model that is used: the best in validation (see `training.best_model_metric`), or the last."""
    training: Training = field(default_factory=Training)
    """Hyper-parameters of the optimisation."""


@section
class Encoder(Trainable):
    """A model that encodes queries and passages as vectors."""

    pretrained: str | None = None
    """Hub name or local folder of a released encoder, in the layout of sentence-transformers or of transformers.
    Pooling, lengths, prompts, projection, similarity are read from its own files; keys that stand here go first. Used
    as it is, or trained further if `training` stands here, too (`{}` for the defaults)."""
    query_prompt: str | None = setting(None, may_be_empty=True)
    """Text put before every query, with `pretrained`; empty for none. Without, the model's own."""
    passage_prompt: str | None = setting(None, may_be_empty=True)
    """Text put before every passage, with `pretrained`; empty for none. Without, the model's own."""
    query_prompt_name: str | None = None
    """Take the model's own prompt of this name for queries; without, that of the name `query`."""
    passage_prompt_name: str | None = None
    """Take the model's own prompt of this name for passages; without, that of `document`, `passage` or `corpus`."""
    pooling: Pooling = "cls"
    """The context representation: the last layer's first token, its last one, or the mean of all."""
    dimension: int = setting(768, ge=1, le=65_536)
    """Size e of the representation."""
    query_length: int = setting(512, ge=3, le=65_536)
    """Tokens a query is cut to, special tokens included."""
    passage_length: int = setting(512, ge=3, le=65_536)
    """Tokens a passage is cut to, special tokens included."""
    similarity: Similarity = "angular"
    """Similarity of two vectors: angular (CoRT), cosine, which gives the same ranking, or inner product (RepBERT)."""
    projection: bool = True
    """Project the context representation to `dimension` numbers and apply tanh (CoRT); without, the vector is the
    representation itself, and `dimension` the model's (RepBERT)."""
    query_segment: Literal[0, 1] = 1
    """Segment id of queries."""
    passage_segment: Literal[0, 1] = 0
    """Segment id of passages; it differs from that of queries in CoRT and RepBERT, and both are 0 in the encoders of
    sentence-transformers."""
    released: str | None = None
    """Take all weights from this file instead of training: a Lightning checkpoint or state_dict of CoRT's authors
    (`transformer.*`, `f1.*`), of which only tensors are read, or the `.safetensors` of a transformers model, which has
    no projection; `dimension` must be that of the file."""
    teacher: str | None = None
    """Name under `rerankers`; `margin_mse` learns from its scores of the triples."""
    start: str | None = None
    """Name of another encoder of the same base model whose weights this one starts from; with that encoder's run as
    `triples.system`, a second round of training with harder negatives."""
    precision: Precision = "fp32"
    """Arithmetic of encoding."""
    storage: Literal["fp32", "fp16"] = "fp32"
    """Type of the stored vectors."""
    triples: Triples = field(default_factory=Triples)
    """Where the training triples come from."""
    onng: Onng = field(default_factory=Onng)
    """The graph index over the encoder's vectors, built when a system asks for it."""
    hnsw: Hnsw = field(default_factory=Hnsw)
    """The HNSW index over the encoder's vectors, built when a system asks for it."""


@section
class IvfPq:
    """Late interaction: the IVF-PQ index over the token vectors, built by faiss when a system asks for it."""

    lists: int | None = setting(None, nullable=True, ge=1, le=100_000_000)
    """Lists that k-means divides the vectors into (nlist); null for the power of 2 from the square root of their number
    on, which is 32,768, as ColBERT's, for the tokens of MS MARCO."""
    bytes: int = setting(16, ge=1, le=65_536)
    """Bytes of a vector's code (PQ of so many parts, 8 bits each), a divisor of `dimension`."""
    sample: int | None = setting(None, nullable=True, ge=256, le=10_000_000_000)
    """Vectors, drawn with the seed, that lists and codes are made from; null for 64 per list and 65,536 at least."""


@section
class Pairs(Examples):
    """Where a re-ranker's training pairs come from."""

    first_rank: int = setting(1, ge=1, le=100_000)
    """First rank negatives are taken from."""
    negatives: int = setting(1, ge=1, le=10_000)
    """Negatives per positive."""
    random: int = setting(0, ge=0, le=10_000)
    """Of the negatives, how many are positives of other queries, drawn at random, instead of results of the query."""
    positives: Literal["one", "all"] = "one"
    """Positives of a query in an epoch: `one`, drawn at random, or `all`."""


@section
class Reranker(Trainable):
    """A model that scores pairs of a query and a passage."""

    pretrained: str | None = None
    """Hub name or local folder of a released cross-encoder of one label, or of two whose names in `id2label` tell which
    means relevant. Lengths are read from its own files; keys that stand here go first. Used as it is, or trained
    further if `training` stands here, too (`{}` for the defaults)."""
    query_length: int = setting(64, ge=3, le=65_536)
    """Tokens a query is cut to, special tokens included."""
    kind: Literal["cross_encoder", "late_interaction", "knrm", "conv_knrm"] = "cross_encoder"
    """`cross_encoder` reads query and passage together; `late_interaction` compares token vectors made of each apart
    (ColBERT), learns from far less, and can retrieve as well; `knrm` counts similar words by kernels, `conv_knrm` also
    n-grams."""
    head: Literal["classification", "linear"] = "classification"
    """Cross-encoder: `classification` is the head for sequences that transformers gives models of a type (BERT: its
    pooler and a linear layer); `linear` is one linear layer on the state of [CLS] (CoRT, section 4.3.1)."""
    dimension: int = setting(64, ge=1, le=65_536)
    """Late interaction: size of the token vectors; KNRM and Conv-KNRM: of word vectors that are `new`."""
    similarity: Literal["cosine", "dot", "l2"] = "cosine"
    """Late interaction: cosine or inner product (`dot`) of token vectors, or their negative squared distance at length
    1 (`l2`)."""
    term_weights: bool = False
    """Late interaction: learn how much each token of a query counts."""
    fill_queries: bool = False
    """Late interaction: fill queries with mask tokens up to `query_length`, as ColBERT does."""
    skip_punctuation: bool = False
    """Late interaction: leave out punctuation of passages, as ColBERT does."""
    word_vectors: Literal["base_model", "new"] = "base_model"
    """KNRM and Conv-KNRM: begin with the token embeddings of the base model, or with `new` random vectors."""
    filters: int = setting(128, ge=1, le=65_536)
    """Conv-KNRM: size of the vectors of n-grams of one, two and three tokens."""
    max_length: int = setting(512, ge=8, le=65_536)
    """Tokens of query and passage together, special tokens included; of the passage alone with late interaction and,
    without special tokens, with kernel pooling."""
    depth: int = setting(1000, ge=1, le=100_000)
    """Candidates scored per query and system; systems re-rank to this depth at most."""
    precision: Precision = "fp32"
    """Arithmetic of scoring."""
    ivfpq: IvfPq = field(default_factory=IvfPq)
    """Late interaction: the IVF-PQ index over the token vectors, built by faiss when a system asks for it."""
    pairs: Pairs = field(default_factory=Pairs)
    """Where the training pairs come from."""

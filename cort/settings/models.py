"""Base models, encoders and re-rankers, their indexes and training examples."""

from __future__ import annotations

from dataclasses import field
from typing import Any, Literal, TypeAlias

from cort.runtime.keys import section, setting
from cort.settings.fields import Cleaning, PrecisionOrAuto, Released
from cort.settings.training import Training

Pooling: TypeAlias = Literal["cls", "mean", "last"]
Similarity: TypeAlias = Literal["angular", "cosine", "inner_product"]


@section
class BaseModel:
    """A transformer with its tokenizer, from which training starts."""

    pretrained: str | None = None
    """Hub name or local folder (safetensors only)."""
    revision: str | None = None
    """Commit of the hub repository, all 40 digits, or `refs/pr/N@COMMIT`, a pull request and the beginning of its
    commit, which is checked. Required with a hub name, because branches and pull requests may move."""
    # The stage that builds the model checks the rest; no number may be large enough to fill the memory.
    architecture: dict[str, Any] | None = setting(None, ge=-1_000_000, le=1_000_000)
    """Random weights instead: `model_type` and further settings of a transformers configuration."""
    vocabulary_size: int = setting(16000, ge=100, le=1_000_000)
    """With `architecture`, size of the WordPiece vocabulary that is trained on the passages."""
    embeddings: Literal["random", "lsa"] = setting("random", "of a new model, before training")
    """With `architecture`, the initial token embeddings: `random`, or `lsa`, latent semantic analysis (Deerwester et
    al., 1990) of the first 1,000 characters of the first 100,000 passages: tokens of the same passages get similar
    vectors."""
    cleaning: Cleaning = "raw"
    """Preprocessing of passages (with expansions) and queries: none (`raw`), wrongly decoded characters fixed
    (`fixed`), or the filter of CoRT's authors, which keeps ASCII letters, digits and `.,!?;/:` (`cort`)."""


@section
class Examples:
    """Where training examples come from."""

    system: str | tuple[str, ...] = setting("bm25", names="systems", unique=True, least=1)
    """System whose run of the training queries provides the negatives: the one to complement. If it is a list, the
    results of all these systems are pooled."""
    last_rank: int = setting(100, ge=1, le=100_000)
    """Last rank that negatives are taken from."""
    minimum_results: int = setting(10, ge=1, le=100_000)
    """Training queries with fewer results are dropped, and counted."""
    maximum_queries: int = setting(0, "draw this many queries at random; 0: all", ge=0, le=1_000_000_000)
    """Train on this many queries drawn at random; 0 for all."""
    file: str | None = None
    """Train on these released triples instead, `.tsv` or `.txt`, plain or `.gz`. A line has the ids `query TAB
    positive TAB negative`, as in MS MARCO's `qidpidtriples.*.tsv`. An epoch is one pass over the file, and
    `training.epochs` is 1 unless it is set. The keys above then apply to validation only."""
    limit: int = setting(0, "read only the first N lines; 0: all", "N", ge=0, le=1_000_000_000)
    """With `file`, read only this many lines from its beginning; 0 for all."""
    sample: int = setting(0, "draw N of these triples at random; 0: all", "N", ge=0, le=1_000_000_000)
    """With `file`, train on this many of the triples read, drawn at random; 0 for all."""
    shuffle: bool = setting(True, "reshuffle in every epoch; otherwise keep the order of the file")
    """With `file`, reshuffle the triples in every epoch. If false, every epoch keeps the order of the file, which in
    `qidpidtriples.train.full.2.tsv` is the order of the queries."""
    unknown_ids: Literal["refuse", "drop"] = setting("refuse", "what to do with unknown queries and passages")
    """With `file`, what to do with a triple whose query is not in `splits.train`, or whose passages are not in the
    collection: `refuse` stops the build at that line; `drop` leaves it out and counts it, as held-out queries and
    sampled collections require."""


@section
class Triples(Examples):
    """Where an encoder's training triples come from."""

    first_rank: int = setting(8, ge=1, le=100_000)
    """First rank that negatives are taken from."""


@section
class Onng:
    """The ONNG index over the encoder's vectors, built when a system uses it."""

    edges: int = setting(100, "edges per passage of the ANNG", "N", ge=1, le=10_000)
    """Edges per node of the ANNG."""
    outgoing: int = setting(10, "outgoing edges kept per passage", "N", ge=1, le=10_000)
    """Outgoing edges kept per node of the ONNG."""
    incoming: int = setting(120, "incoming edges kept per passage", "N", ge=1, le=10_000)
    """Incoming edges kept per node of the ONNG."""


@section
class Hnsw:
    """The HNSW index over the encoder's vectors, built when a system uses it."""

    M: int = setting(16, "edges per passage and layer, twice as many on the lowest", "M", ge=2, le=1000)
    """Edges per node and layer (M), twice as many on the lowest layer."""
    ef_construction: int = setting(200, "width of the search for edges", "N", ge=1, le=100_000)
    """Width of the search for these edges during construction."""


@section
class IvfPq:
    """The IVF-PQ index over the vectors of texts or tokens, built by faiss when a system uses it."""

    lists: int | None = setting(None, "that vectors are divided into", "N", nullable=True, ge=1, le=100_000_000)
    """Lists that k-means divides the vectors into (nlist); null for the smallest power of 2 that is at least the square
    root of their number: for the tokens of MS MARCO, 32,768 as in ColBERT."""
    bytes: int = setting(16, "stored of each vector", "N", ge=1, le=65_536)
    """Bytes of a vector's code (product quantization into this many parts of 8 bits), a divisor of `dimension`."""
    sample: int | None = setting(
        None, "vectors that lists and codes are trained on", "N", nullable=True, ge=256, le=10_000_000_000
    )
    """Vectors, drawn with the seed, that lists and codes are trained on; null for 64 per list, and at least 65,536."""


@section
class Trainable(Released):
    """What encoders and re-rankers have in common."""

    base_model: str | None = None
    """Name under `base_models`; either this or `pretrained`."""
    recipe: Literal["paper", "small", "gpl"] = "paper"
    """Set of default values for training: `paper`, those of this reference; `small`, for collections with thousands of
    training queries; or `gpl`, for an encoder and queries made from documents. Keys set here override them; the values
    are listed below."""
    checkpoint: Literal["best", "last"] = "best"
    """Which model is used: the best in validation (see `training.best_model_metric`), or the last."""
    training: Training = field(default_factory=Training)
    """Hyper-parameters of the optimisation."""


@section
class Representation:
    """How an encoder represents texts."""

    pooling: Literal[Pooling, "weighted_mean"] = "cls"
    """The context representation: the last layer's state of the first token (`cls`), of the last token (`last`), or the
    mean over all tokens (`mean`). `weighted_mean` weights each token by its inverse document frequency in the passages;
    not with `pretrained` or `released`."""
    dimension: int = setting(768, "size of the vectors", ge=1, le=65_536)
    """Size e of the vectors. With `pretrained`, they are truncated to it before normalization, which models trained for
    it allow (Matryoshka); if not set, it is the model's own."""
    query_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a query is truncated to, special tokens included."""
    passage_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Tokens that a passage is truncated to, special tokens included."""
    similarity: Similarity = "angular"
    """Similarity of two vectors: angular (CoRT), cosine, which gives the same ranking, or inner product (RepBERT)."""
    projection: bool = setting(True, "False: vectors are the transformer's states")
    """Project the context representation to `dimension` numbers and apply tanh (CoRT); if false, it is the vector
    itself, and `dimension` must be the model's (RepBERT). Not with `pretrained`."""
    query_segment: Literal[0, 1] = 1
    """Segment id of queries. Not with `pretrained`."""
    passage_segment: Literal[0, 1] = 0
    """Segment id of passages; it differs from that of queries in CoRT and RepBERT. Not with `pretrained`."""


@section
class Sparsity:
    """FLOPS regularisation of sparse encoders (Paria et al., 2020): the squared mean weight of each token, summed up.

    The weights are those of SPLADE v2 (Formal et al., 2021).
    """

    query_flops: float = setting(0.0008, "weight of the FLOPS of queries, of sparse encoders", ge=0, le=1000)
    """Sparse encoders: weight of the FLOPS of queries in the loss; more makes queries sparser."""
    passage_flops: float = setting(0.0006, "weight of the FLOPS of passages, of sparse encoders", ge=0, le=1000)
    """Sparse encoders: weight of the FLOPS of passages in the loss; more makes passages sparser."""
    flops_warmup: float = setting(0.33, "share of the training in which these weights grow", ge=0, le=1)
    """Sparse encoders: share of the training in which both weights grow quadratically from 0."""


@section
class Encoder(Representation, Sparsity, Trainable):
    """A model that encodes queries and passages as vectors."""

    kind: Literal["dense", "sparse"] = "dense"
    """`dense` encodes a text as one vector; `sparse` as weights of the vocabulary's tokens (SPLADE), which Lucene
    indexes."""
    queries: Literal["model", "none"] = "model"
    """Sparse encoders: encode queries with the `model`, or with `none`: each token of a query then has its inverse
    document frequency as weight."""
    pretrained: str | None = None
    """Hub name or local folder of a released encoder, in the layout of sentence-transformers or of transformers.
    Pooling, dimension, lengths, prompts and similarity are read from its files; keys set here override them. The model
    is used as it is, or trained further if `training` is set, too (`{}` for the defaults)."""
    query_prompt: str | None = setting(None, "prepended to every query", "TEXT", may_be_empty=True)
    """With `pretrained`, text put before every query; empty for none. If not set, the model's own."""
    passage_prompt: str | None = setting(None, "prepended to every passage", "TEXT", may_be_empty=True)
    """With `pretrained`, text put before every passage; empty for none. If not set, the model's own."""
    query_prompt_name: str | None = setting(None, "use the model's prompt of this name", "NAME")
    """Use the model's own prompt of this name for queries; if not set, the one named `query`."""
    passage_prompt_name: str | None = setting(None, "use the model's prompt of this name", "NAME")
    """Use the model's own prompt of this name for passages; if not set, the one named `document`, `passage` or
    `corpus`."""
    released: str | None = None
    """Take all weights from this file instead of training: a Lightning checkpoint or state_dict of CoRT's authors
    (`transformer.*`, `f1.*`), of which only tensors are read, or the `.safetensors` of a transformers model, which has
    no projection; `dimension` must match the file."""
    teacher: str | None = setting(None, names="rerankers")
    """Name under `rerankers`; `margin_mse` learns from its scores of the triples."""
    start: str | None = setting(None, names="encoders")
    """Name of another encoder of the same base model, whose weights this one starts from; with that encoder's run as
    `triples.system`, this is a second round of training with harder negatives."""
    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of encoding. `auto` measures on the machine that begins to encode the passages: bf16 if it multiplies
    matrices at least 1.3 times as fast in it as in fp32, else fp32; queries are encoded alike. It is the default of
    `pretrained` models that are not trained further."""
    storage: Literal["fp32", "fp16"] = setting("fp32", "of the vectors")
    """Type of the stored vectors."""
    triples: Triples = field(default_factory=Triples)
    """Where the training triples come from."""
    onng: Onng = field(default_factory=Onng)
    """The ONNG index over the encoder's vectors, built when a system uses it."""
    hnsw: Hnsw = field(default_factory=Hnsw)
    """The HNSW index over the encoder's vectors, built when a system uses it."""
    ivfpq: IvfPq = field(default_factory=IvfPq)
    """The IVF-PQ index over the encoder's vectors, built by faiss when a system uses it."""


@section
class Pairs(Examples):
    """Where a re-ranker's training pairs come from."""

    first_rank: int = setting(1, ge=1, le=100_000)
    """First rank that negatives are taken from."""
    negatives: int = setting(1, "negatives per positive", ge=1, le=10_000)
    """Negatives per positive."""
    random: int = setting(0, "how many of the negatives are positives of other queries", ge=0, le=10_000)
    """How many of the negatives are positives of other queries, drawn at random, instead of results of the query."""
    positives: Literal["one", "all"] = setting("one", "positives per query and epoch")
    """Positives per query in an epoch: `one`, drawn at random, or `all`."""


@section
class Scoring:
    """How a re-ranker scores pairs."""

    query_length: int = setting(64, "tokens of the query, special tokens included", ge=3, le=65_536)
    """Tokens that a query is truncated to, special tokens included."""
    max_length: int = setting(
        512, "tokens of the pair, or of a separate passage, special tokens included", ge=8, le=65_536
    )
    """Tokens of query and passage together, special tokens included; with late interaction, of the passage only; with
    kernel pooling, of the passage only and without special tokens."""
    kind: Literal["cross_encoder", "late_interaction", "knrm", "conv_knrm", "monot5", "rankt5"] = "cross_encoder"
    """`cross_encoder` reads query and passage together; `late_interaction` encodes them separately and compares token
    vectors (ColBERT), needs far less training data, and can retrieve as well; `knrm` counts similar words by kernels,
    `conv_knrm` also similar n-grams. `monot5` and `rankt5` are encoder-decoders, released ones only."""
    head: Literal["classification", "linear"] = setting(
        "classification", "of a cross-encoder; linear: a layer on [CLS]"
    )
    """Cross-encoder: `classification` is the classification head of transformers for this type of model (BERT: pooler
    and linear layer); `linear` is one linear layer on the state of [CLS] (CoRT, section 4.3.1)."""
    dimension: int = setting(64, "of token vectors, or of new word vectors", ge=1, le=65_536)
    """Late interaction: size of the token vectors; KNRM and Conv-KNRM: size of word vectors that are `new`."""
    similarity: Literal["cosine", "dot", "l2"] = setting("cosine", "of token vectors")
    """Late interaction: cosine or inner product (`dot`) of token vectors, or the negative squared distance of vectors
    of length 1 (`l2`), which is 2 cos - 2. It matters in training alone: the trained model ranks by the cosine, to the
    same effect."""
    term_weights: bool = setting(False, "learn a weight for each query token")
    """Late interaction: learn how much each token of a query counts."""
    fill_queries: bool = setting(False, "with mask tokens up to the maximum length, as ColBERT does")
    """Late interaction: pad queries with mask tokens up to `query_length`, as ColBERT does."""
    skip_punctuation: bool = setting(False, "ignore punctuation in passages")
    """Late interaction: ignore punctuation in passages, as ColBERT does."""
    word_vectors: Literal["base_model", "new"] = setting("base_model", "kernel pooling: the base model's, or new ones")
    """KNRM and Conv-KNRM: start from the token embeddings of the base model, or from `new` random vectors."""
    filters: int = setting(128, "of the convolution for each n-gram length", ge=1, le=65_536)
    """Conv-KNRM: size of the vectors of n-grams of one, two and three tokens."""


@section
class Reranker(Scoring, Trainable):
    """A model that scores pairs of a query and a passage."""

    recipe: Literal["paper", "small"] = "paper"
    """Set of default values for training: `paper`, those of this reference, or `small`, for collections with thousands
    of training queries. Keys set here override them; the values are listed below."""
    pretrained: str | None = None
    """Hub name or local folder of a released re-ranker of the `kind` set here: a cross-encoder with one label, or with
    two whose names in `id2label` say which means relevant, or a language model that answers yes or no; a ColBERT model
    of PyLate, Stanford or sentence-transformers; a monoT5 or RankT5. Lengths are read from its files; keys set here
    override them. A cross-encoder or ColBERT model is used as it is, or trained further if `training` is set, too (`{}`
    for the defaults)."""
    depth: int = setting(1000, "candidates per query and run", ge=1, le=100_000)
    """Candidates scored per query and system; systems re-rank to this depth at most."""
    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of scoring, and of encoding for retrieval; `auto` as for encoders: the default of `pretrained` models
    that are not trained further."""
    ivfpq: IvfPq = field(default_factory=IvfPq)
    """Late interaction: the IVF-PQ index over the token vectors, built by faiss when a system uses it."""
    pairs: Pairs = field(default_factory=Pairs)
    """Where the training pairs come from."""

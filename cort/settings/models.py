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
    commit. Required with a hub name."""
    # The stage that builds the model checks the rest; no number may be large enough to fill the memory.
    architecture: dict[str, Any] | None = setting(None, ge=-1_000_000, le=1_000_000)
    """Random weights instead: `model_type` and other settings of a transformers configuration."""
    vocabulary_size: int = setting(16000, ge=100, le=1_000_000)
    """With `architecture`, size of the WordPiece vocabulary trained on the passages; of more than 100,000, on a sample
    of 100,000 drawn from the seed."""
    embeddings: Literal["random", "lsa"] = setting("random", "of a new model, before training")
    """With `architecture`, initial token embeddings: `random`, or latent semantic analysis (`lsa`; Deerwester et al.,
    1990) of the first 1,000 characters of the same passages."""
    cleaning: Cleaning = "raw"
    """As `lexical.<name>.cleaning`."""


@section
class Examples:
    """Where training examples come from."""

    system: str | tuple[str, ...] = setting("bm25", names="systems", unique=True, least=1)
    """System whose run of the training queries provides the negatives: the one to complement. The results of several
    are pooled."""
    last_rank: int = setting(100, ge=1, le=100_000)
    """Last rank of negatives."""
    minimum_results: int = setting(10, ge=1, le=100_000)
    """Training queries with fewer results are dropped, and counted."""
    maximum_queries: int = setting(0, "draw this many queries at random; 0: all", ge=0, le=1_000_000_000)
    """Train on this many random queries; 0: all."""
    file: str | None = None
    """Train on released triples instead: `.tsv` or `.txt`, plain or `.gz`, with lines of ids, `query TAB positive TAB
    negative`. An epoch is a pass over the file; `training.epochs` is 1 by default. The keys above then apply to
    validation only."""
    limit: int = setting(0, "read only the first N lines; 0: all", "N", ge=0, le=1_000_000_000)
    """With `file`, read only the first lines; 0: all."""
    sample: int = setting(0, "draw N of these triples at random; 0: all", "N", ge=0, le=1_000_000_000)
    """With `file`, draw this many triples; 0: all."""
    shuffle: bool = setting(True, "reshuffle in every epoch; otherwise keep the order of the file")
    """With `file`, reshuffle in every epoch; otherwise keep the order of the file."""
    unknown_ids: Literal["refuse", "drop"] = setting("refuse", "what to do with unknown queries and passages")
    """With `file`, `refuse` triples with queries outside `splits.train` or passages outside the collection, or `drop`
    and count them."""


@section
class Triples(Examples):
    """Where an encoder's training triples come from."""

    first_rank: int = setting(8, ge=1, le=100_000)
    """First rank of negatives."""


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
    """Lists of k-means (nlist); null: the smallest power of 2 that is at least the square root of the number of vectors
    (32,768 for MS MARCO's tokens, as in ColBERT)."""
    bytes: int = setting(16, "stored of each vector", "N", ge=1, le=65_536)
    """Bytes per vector (product quantization into as many parts), a divisor of `dimension`."""


@section
class Trainable(Released):
    """What encoders and re-rankers have in common."""

    base_model: str | None = None
    """Name under `base_models`; either this or `pretrained`."""
    recipe: Literal["paper", "small", "gpl"] = "paper"
    """Default values for training, listed below: `paper`, those of this reference; `small`, for thousands of training
    queries; `gpl`, for queries generated from documents. Keys set here override them."""
    checkpoint: Literal["best", "last"] = "best"
    """Model to use: the best in validation (`training.best_model_metric`), or the last."""
    training: Training = field(default_factory=Training)
    """Hyper-parameters of the optimisation."""


@section
class Representation:
    """How an encoder represents texts."""

    pooling: Literal[Pooling, "weighted_mean"] = "cls"
    """State of the first token (`cls`), of the last token (`last`), or the mean over all tokens (`mean`), or the mean
    weighted by inverse document frequency in the passages (`weighted_mean`, not with `pretrained` or `released`)."""
    dimension: int = setting(768, "size of the vectors", ge=1, le=65_536)
    """Size of the vectors. With `pretrained`, they are truncated to it before normalization (Matryoshka); by default
    the model's own."""
    query_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Maximum tokens of a query, special tokens included."""
    passage_length: int = setting(512, "tokens, special tokens included", ge=3, le=65_536)
    """Maximum tokens of a passage, special tokens included."""
    similarity: Similarity = "angular"
    """Angular (CoRT), cosine, which ranks alike, or inner product (RepBERT)."""
    projection: bool = setting(True, "False: vectors are the transformer's states")
    """Project the pooled state to `dimension` numbers, then tanh (CoRT); if false, the state is the vector, and
    `dimension` the model's (RepBERT). Not with `pretrained`."""
    query_segment: Literal[0, 1] = 1
    """Segment id of queries. Not with `pretrained`."""
    passage_segment: Literal[0, 1] = 0
    """Segment id of passages, which differs in CoRT and RepBERT. Not with `pretrained`."""


@section
class Sparsity:
    """FLOPS regularisation of sparse encoders (Paria et al., 2020): the squared mean weight of each token, summed up.

    The weights are those of SPLADE v2 (Formal et al., 2021).
    """

    query_flops: float = setting(0.0008, "weight of the FLOPS of queries, of sparse encoders", ge=0, le=1000)
    """Sparse encoders: weight of the queries' FLOPS in the loss; more makes them sparser."""
    passage_flops: float = setting(0.0006, "weight of the FLOPS of passages, of sparse encoders", ge=0, le=1000)
    """Sparse encoders: weight of the passages' FLOPS."""
    flops_warmup: float = setting(0.33, "share of the training in which these weights grow", ge=0, le=1)
    """Sparse encoders: share of training in which both weights grow quadratically from 0."""


@section
class Encoder(Representation, Sparsity, Trainable):
    """A model that encodes queries and passages as vectors."""

    kind: Literal["dense", "sparse"] = "dense"
    """One vector per text (`dense`), or weights of the vocabulary's tokens (`sparse`, SPLADE), which Lucene indexes."""
    queries: Literal["model", "none"] = "model"
    """Sparse encoders: encode queries with the `model`, or with `none`: each token weighs its inverse document
    frequency."""
    pretrained: str | None = None
    """Hub name or folder of a released encoder, in the layout of sentence-transformers or transformers. Pooling,
    dimension, lengths, prompts and similarity come from its files; keys set here override them. With `training` (`{}`
    for the defaults), it is trained further."""
    query_prompt: str | None = setting(None, "prepended to every query", "TEXT", may_be_empty=True)
    """With `pretrained`, text put before every query; by default the model's own."""
    passage_prompt: str | None = setting(None, "prepended to every passage", "TEXT", may_be_empty=True)
    """With `pretrained`, text put before every passage; by default the model's own."""
    query_prompt_name: str | None = setting(None, "use the model's prompt of this name", "NAME")
    """Name of the model's prompt for queries; by default `query`."""
    passage_prompt_name: str | None = setting(None, "use the model's prompt of this name", "NAME")
    """Name of the model's prompt for passages; by default `document`, `passage` or `corpus`."""
    released: str | None = None
    """Take all weights from this file instead of training: a Lightning checkpoint or state_dict of CoRT's authors, of
    which only tensors are read, or the `.safetensors` of a transformers model without projection; `dimension` must
    match."""
    teacher: str | None = setting(None, names="rerankers")
    """Name under `rerankers`, from whose scores of the triples `margin_mse` learns."""
    start: str | None = setting(None, names="encoders")
    """Encoder of the same base model to start from; with its run as `triples.system`, a second round of training with
    harder negatives."""
    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of encoding. `auto`, the default of `pretrained` models that are not trained further, is bf16 if the
    machine that first encodes passages has instructions for it, else fp32."""
    storage: str | tuple[str, ...] = setting(
        "fp32", "of the vectors", pattern="^(fp32|fp16|int8)$", unique=True, least=1
    )
    """Type of the stored vectors. In a list, the others make systems: `dense-int8` of `dense`."""
    dimensions: tuple[int, ...] | None = setting(None, ge=1, le=65_536, unique=True, least=1)
    """Fewer numbers of the same vectors make systems, too: `dense-64`."""
    matryoshka: bool | None = setting(None, "fewer numbers are the first ones, not principal components")
    """Fewer numbers are the first ones, as the model was trained for that; otherwise, principal components."""
    triples: Triples = field(default_factory=Triples)
    """Where training triples come from."""
    onng: Onng = field(default_factory=Onng)
    """ONNG index, built when a system uses it."""
    hnsw: Hnsw = field(default_factory=Hnsw)
    """HNSW index, built when a system uses it."""
    ivfpq: IvfPq = field(default_factory=IvfPq)
    """IVF-PQ index of faiss, built when a system uses it."""


@section
class Pairs(Examples):
    """Where a re-ranker's training pairs come from."""

    first_rank: int = setting(1, ge=1, le=100_000)
    """First rank of negatives."""
    negatives: int = setting(1, "negatives per positive", ge=1, le=10_000)
    """Negatives per positive."""
    random: int = setting(0, "how many of the negatives are positives of other queries", ge=0, le=10_000)
    """How many of the negatives are positives of other queries, drawn at random."""
    positives: Literal["one", "all"] = setting("one", "positives per query and epoch")
    """Positives per query in an epoch: `one`, drawn at random, or `all`."""


@section
class Scoring:
    """How a re-ranker scores pairs."""

    query_length: int = setting(64, "tokens of the query, special tokens included", ge=3, le=65_536)
    """Maximum tokens of a query, special tokens included."""
    max_length: int = setting(
        512, "tokens of the pair, or of a separate passage, special tokens included", ge=8, le=65_536
    )
    """Maximum tokens of query and passage together; with late interaction or kernel pooling, of the passage."""
    kind: Literal["cross_encoder", "late_interaction", "knrm", "conv_knrm", "monot5", "rankt5"] = "cross_encoder"
    """`cross_encoder` reads query and passage together; `late_interaction` (ColBERT) compares their token vectors,
    needs far less training data, and can retrieve, too; `knrm` and `conv_knrm` count similar words or n-grams by
    kernels; `monot5` and `rankt5` are released encoder-decoders."""
    head: Literal["classification", "linear"] = setting(
        "classification", "of a cross-encoder; linear: a layer on [CLS]"
    )
    """Of a cross-encoder: the `classification` head of transformers for this type of model, or one `linear` layer on
    [CLS] (CoRT, section 4.3.1)."""
    dimension: int = setting(64, "of token vectors", ge=1, le=65_536)
    """Late interaction: size of token vectors."""
    similarity: Literal["cosine", "dot", "l2"] = setting("cosine", "of token vectors")
    """Late interaction: cosine or inner product (`dot`) of token vectors, or negative squared distance of unit vectors
    (`l2`), which ranks like the cosine."""
    term_weights: bool = setting(False, "learn a weight for each query token")
    """Late interaction: learn a weight for each query token."""
    fill_queries: bool = setting(False, "with mask tokens up to the maximum length, as ColBERT does")
    """Late interaction: pad queries with mask tokens to `query_length`, as ColBERT does."""
    skip_punctuation: bool = setting(False, "ignore punctuation in passages")
    """Late interaction: ignore punctuation in passages, as ColBERT does."""
    filters: int = setting(128, "of the convolution for each n-gram length", ge=1, le=65_536)
    """Conv-KNRM: size of n-gram vectors."""


@section
class Reranker(Scoring, Trainable):
    """A model that scores pairs of a query and a passage."""

    recipe: Literal["paper", "small"] = "paper"
    """Default values for training, as for encoders."""
    pretrained: str | None = None
    """Hub name or folder of a released re-ranker of this `kind`: a cross-encoder with one label, or two whose names say
    which means relevant; a language model that answers yes or no; a ColBERT model of PyLate, Stanford or
    sentence-transformers, or an encoder of means; a monoT5 or RankT5. Lengths come from its files; keys set here
    override them. With `training`, a cross-encoder or ColBERT model is trained further."""
    depth: int = setting(1000, ge=1, le=100_000)
    """Candidates re-ranked per query, for systems that set no `depth` of their own."""
    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of scoring and of encoding for retrieval; `auto` as for encoders."""
    ivfpq: IvfPq = field(default_factory=IvfPq)
    """Late interaction: IVF-PQ index of the token vectors."""
    pairs: Pairs = field(default_factory=Pairs)
    """Where training pairs come from."""

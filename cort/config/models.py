"""Base models, encoders and re-rankers, their indexes and training examples.

`cort/config/learners.py` joins these with the losses to the variants of encoders and re-rankers.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from cort.config.fields import Cleaning, Listed, PrecisionOrAuto, Revision, one_or_more
from cort.config.training import Training
from cort.runtime.sections import (
    FIRST_FITTING,
    INCREASING,
    NO_TRUTH,
    UNIQUE,
    Maybe,
    Names,
    Section,
    Several,
    Text,
    by_name,
    within,
)

Pooling: TypeAlias = Literal["cls", "mean", "last"]
Similarity: TypeAlias = Literal["angular", "cosine", "inner_product"]
#: tokens of a text, special tokens included; numbers of a vector
Tokens: TypeAlias = Annotated[int, Field(ge=3, le=65_536)]
PairTokens: TypeAlias = Annotated[int, Field(ge=8, le=65_536)]
Width: TypeAlias = Annotated[int, Field(ge=1, le=65_536)]
Segment: TypeAlias = Annotated[Literal[0, 1], NO_TRUTH]


class Cleaned(Section):
    """How texts are cleaned."""

    cleaning: Cleaning = "raw"
    """As `lexical.<name>.cleaning`."""


class PretrainedBase(Revision, Cleaned):
    """A pretrained model."""

    pretrained: Text
    """Hub name or local folder (safetensors only)."""


class Vocabulary(Cleaned):
    """The tokenizer of a new model, and its token embeddings."""

    vocabulary_size: int = Field(16000, ge=100, le=1_000_000)
    """With `architecture`, size of the WordPiece vocabulary trained on the passages; of more than 100,000, on a sample
    of 100,000 drawn from the seed."""
    embeddings: Literal["random", "lsa"] = "random"
    """With `architecture`, initial token embeddings: `random`, or latent semantic analysis (`lsa`; Deerwester et al.,
    1990) of the first 1,000 characters of the same passages."""


class Architecture(Vocabulary):
    """An architecture."""

    # The stage that builds the model checks the rest; no number may be large enough to fill the memory.
    architecture: Annotated[dict[str, Any], AfterValidator(within(-1_000_000, 1_000_000)), AfterValidator(by_name)]
    """Random weights instead: `model_type` and other settings of a transformers configuration."""


#: a transformer with its tokenizer, from which training starts
BaseModel: TypeAlias = Annotated[PretrainedBase | Architecture, FIRST_FITTING]


class Examples(Section):
    """Where training examples come from."""

    system: Annotated[Text | Annotated[Listed, UNIQUE], Names("systems")] = "bm25"
    """System whose run of the training queries provides the negatives: the one to complement. The results of several
    are pooled."""
    last_rank: int = Field(100, ge=1, le=100_000)
    """Last rank of negatives. If it exceeds `training_depth`, the model has the training queries searched for
    itself, and keeps only what it draws; not with approximate indexes, re-ranking or published runs."""
    minimum_results: int = Field(10, ge=1, le=100_000)
    """Training queries with fewer results are dropped, and counted."""
    maximum_queries: int = Field(0, ge=0, le=1_000_000_000)
    """Train on this many random queries; 0: all."""

    @property
    def systems(self) -> list[str]:
        """The systems whose runs of the training queries provide the negatives."""
        return one_or_more(self.system)


class Selection(Section):
    """What is read of a file of released triples."""

    limit: int = Field(0, ge=0, le=1_000_000_000)
    """With `file`, read only the first lines; 0: all."""
    sample: int = Field(0, ge=0, le=1_000_000_000)
    """With `file`, draw this many triples; 0: all."""
    shuffle: bool = True
    """With `file`, reshuffle in every epoch; otherwise keep the order of the file."""
    unknown_ids: Literal["refuse", "drop"] = "refuse"
    """With `file`, `refuse` triples with queries outside `splits.train` or passages outside the collection, or `drop`
    and count them."""


class ReleasedExamples(Selection):
    """Released triples."""

    file: Text
    """Train on released triples instead: `.tsv` or `.txt`, plain or `.gz`, with lines of ids, `query TAB positive TAB
    negative`. An epoch is a pass over the file; `training.epochs` is 1 by default. The keys above then apply to
    validation only."""


class Triples(Examples):
    """Ranks of triples."""

    first_rank: int = Field(8, ge=1, le=100_000)
    """First rank of negatives."""


class DrawnTriples(Triples):
    """Triples of a system."""

    negatives: int = Field(1, ge=1, le=1000)
    """Negatives per positive, all of one query; queries with fewer are dropped, and counted."""


class FileTriples(Triples, ReleasedExamples):
    """Triples of a file."""


#: where an encoder's training triples come from
AnyTriples: TypeAlias = Annotated[FileTriples | DrawnTriples, FIRST_FITTING]


class Pairs(Examples):
    """Pairs of a system."""

    first_rank: int = Field(1, ge=1, le=100_000)
    """First rank of negatives."""
    negatives: int = Field(1, ge=1, le=10_000)
    """Negatives per positive."""
    random: int = Field(0, ge=0, le=10_000)
    """How many of the negatives are positives of other queries, drawn at random."""
    positives: Literal["one", "all", "retrieved"] = "one"
    """Positives per query in an epoch: `one` at random, or `all`. `retrieved`: each result is a pair, with the loss
    `pointwise`."""


class FilePairs(Pairs, ReleasedExamples):
    """Pairs of a file."""


#: where a re-ranker's training pairs come from
AnyPairs: TypeAlias = Annotated[FilePairs | Pairs, FIRST_FITTING]


class Onng(Section):
    """The ONNG index over the encoder's vectors, built when a system uses it."""

    edges: int = Field(100, ge=1, le=10_000)
    """Edges per node of the ANNG."""
    outgoing: int = Field(10, ge=1, le=10_000)
    """Outgoing edges kept per node of the ONNG."""
    incoming: int = Field(120, ge=1, le=10_000)
    """Incoming edges kept per node of the ONNG."""


class Hnsw(Section):
    """The HNSW index over the encoder's vectors, built when a system uses it."""

    M: int = Field(16, ge=2, le=1000)
    """Edges per node and layer (M), twice as many on the lowest layer."""
    ef_construction: int = Field(200, ge=1, le=100_000)
    """Width of the search for these edges during construction."""


class IvfPq(Section):
    """The IVF-PQ index over the vectors of texts or tokens, built by faiss when a system uses it."""

    lists: int | None = Field(None, ge=1, le=100_000_000)
    """Lists of k-means (nlist); null: the smallest power of 2 that is at least the square root of the number of vectors
    (32,768 for MS MARCO's tokens, as in ColBERT)."""
    bytes: int = Field(16, ge=1, le=65_536)
    """Bytes per vector (product quantization into as many parts), a divisor of `dimension`."""


# Parts of encoders.


class Hub(Revision):
    """A released encoder."""

    pretrained: Text
    """Hub name or folder of a released encoder, in the layout of sentence-transformers or transformers. Pooling,
    dimension, lengths, prompts and similarity come from its files; keys set here override them. With `training` (`{}`
    for the defaults), it is trained further."""


class Prompts(Section):
    """Texts before queries and passages."""

    query_prompt: Maybe[str] = None
    """With `pretrained`, text put before every query; by default the model's own."""
    passage_prompt: Maybe[str] = None
    """With `pretrained`, text put before every passage; by default the model's own."""
    query_prompt_name: Maybe[Text] = None
    """Name of the model's prompt for queries; by default `query`."""
    passage_prompt_name: Maybe[Text] = None
    """Name of the model's prompt for passages; by default `document`, `passage` or `corpus`."""


class Described(Section):
    """What the files of a released encoder define, unless it is set."""

    pooling: Maybe[Literal[Pooling, "weighted_mean"]] = None
    """State of the first token (`cls`), of the last token (`last`), or the mean over all tokens (`mean`), or the mean
    weighted by inverse document frequency in the passages (`weighted_mean`, not with `pretrained` or `released`)."""
    dimension: Maybe[Width] = None
    """Size of the vectors. With `pretrained`, they are truncated to it before normalization (Matryoshka); by default
    the model's own."""
    similarity: Maybe[Similarity] = None
    """Angular (CoRT), cosine, which ranks alike, or inner product (RepBERT)."""


class DescribedLengths(Section):
    """Lengths that the files of a released encoder define, unless they are set."""

    query_length: Maybe[Tokens] = None
    """Maximum tokens of a query, special tokens included."""
    passage_length: Maybe[Tokens] = None
    """Maximum tokens of a passage, special tokens included."""


class Lengths(DescribedLengths):
    """Lengths of texts in tokens."""

    query_length: Tokens = 512
    passage_length: Tokens = 512


class Representation(Described, Lengths):
    """How a new encoder represents texts; the defaults are the paper's."""

    pooling: Literal[Pooling, "weighted_mean"] = "cls"
    dimension: Width = 768
    similarity: Similarity = "angular"
    projection: bool = True
    """Project the pooled state to `dimension` numbers, then tanh (CoRT); if false, the state is the vector, and
    `dimension` the model's (RepBERT). Not with `pretrained`."""
    query_segment: Segment = 1
    """Segment id of queries. Not with `pretrained`."""
    passage_segment: Segment = 0
    """Segment id of passages, which differs in CoRT and RepBERT. Not with `pretrained`."""


class Precise(Section):
    """Arithmetic of a model that is trained or imported."""

    precision: PrecisionOrAuto = "fp32"
    """Arithmetic of encoding. `auto`, the default of `pretrained` models that are not trained further, is bf16 if the
    machine that first encodes passages has instructions for it, else fp32."""


class AutoPrecise(Precise):
    """Arithmetic of a model that is released as it is."""

    precision: PrecisionOrAuto = "auto"


class Vectors(Section):
    """Vectors of a dense encoder, and their indexes."""

    kind: Literal["dense"] = "dense"
    """One vector per text (`dense`), or weights of the vocabulary's tokens (`sparse`, SPLADE), which Lucene indexes."""
    storage: Literal["fp32", "fp16"] = "fp32"
    """Type of the stored vectors."""
    matryoshka: Maybe[bool | Annotated[Several[Width], Field(min_length=1), INCREASING]] = None
    """Fewer numbers are the first ones, as the model was trained for that; otherwise, principal components. A list such
    as `[64, 128, 256]` trains it: the loss is added up over so many first numbers of each vector, and over all."""
    onng: Onng = Field(default_factory=Onng)
    """ONNG index, built when a system uses it."""
    hnsw: Hnsw = Field(default_factory=Hnsw)
    """HNSW index, built when a system uses it."""
    ivfpq: IvfPq = Field(default_factory=IvfPq)
    """IVF-PQ index of faiss, built when a system uses it."""


class FinishedVectors(Vectors):
    """Vectors of a dense encoder that is not trained here."""

    matryoshka: Maybe[bool] = None
    """Fewer numbers are the first ones, as the model was trained for that; otherwise, principal components."""


class Sparse(Section):
    """Weights of the vocabulary's tokens."""

    kind: Literal["sparse"]
    """One vector per text (`dense`), or weights of the vocabulary's tokens (`sparse`, SPLADE), which Lucene indexes."""


class Sparsity(Section):
    """FLOPS regularisation of sparse encoders (Paria et al., 2020): the squared mean weight of each token, summed up.

    The weights are those of SPLADE v2 (Formal et al., 2021).
    """

    query_flops: float = Field(0.0008, ge=0, le=1000)
    """Sparse encoders: weight of the queries' FLOPS in the loss; more makes them sparser."""
    passage_flops: float = Field(0.0006, ge=0, le=1000)
    """Sparse encoders: weight of the passages' FLOPS."""
    flops_warmup: float = Field(0.33, ge=0, le=1)
    """Sparse encoders: share of training in which both weights grow quadratically from 0."""


class QueryEncoding(Section):
    """Setting of a sparse encoder."""

    queries: Literal["model", "none"] = "model"
    """Sparse encoders: encode queries with the `model`, or with `none`: each token weighs its inverse document
    frequency."""


class Started(Section):
    """A model that begins with a base model."""

    base_model: Text
    """Name under `base_models`; either this or `pretrained`."""


class Checkpoint(Section):
    """Which weights of a training are used."""

    checkpoint: Literal["best", "last"] = "best"
    """Model to use: the best in validation (`training.best_model_metric`), or the last."""


class Learning(Checkpoint):
    """What trained encoders have in common."""

    recipe: Literal["paper", "small", "gpl"] = "paper"
    """Default values for training, listed below: `paper`, those of this reference; `small`, for thousands of training
    queries; `gpl`, for queries generated from documents. Keys set here override them."""
    training: Training = Field(default_factory=Training)
    """Hyper-parameters of the optimisation."""
    triples: AnyTriples = Field(default_factory=DrawnTriples)
    """Where training triples come from."""
    teacher: Annotated[Maybe[Text], Names("rerankers")] = None
    """Name under `rerankers`, from whose scores of the triples `margin_mse` and `kl` learn."""
    start: Annotated[Maybe[Text], Names("encoders")] = None
    """Encoder of the same base model to start from; with its run as `triples.system`, a second round of training with
    harder negatives."""

    @property
    def examples(self) -> AnyTriples:
        """Where training examples come from."""
        return self.triples


class Served(Section):
    """A model behind an API."""

    endpoint: Text
    """Name of the model at the server."""
    #: of all that it computes, as it comes
    precision: ClassVar[Literal["fp32"]] = "fp32"


class Service(Served):
    """An encoder behind an API."""

    endpoint: Text
    """Name of an embeddings model at a server with OpenAI's interface (`/v1/embeddings`: llama.cpp, vLLM, TEI, Ollama,
    paid services), whose address and key come from the environment: OPENAI_BASE_URL and OPENAI_API_KEY. Each answer is
    kept in `endpoint_cache/`; no text is sent twice."""
    dimension: Maybe[Width] = None
    """Size of the vectors, which the server is asked for; by default the model's own."""
    similarity: Literal["cosine", "inner_product"] = "cosine"
    """Cosine, for which vectors are normalized, or inner product of the vectors as the server sends them."""
    query_prompt: Maybe[str] = None
    """Text put before every query; with `pretrained`, by default the model's own."""
    passage_prompt: Maybe[str] = None
    """Text put before every passage; with `pretrained`, by default the model's own."""


# Parts of re-rankers.


class ReleasedScoring(Revision, AutoPrecise):
    """A released re-ranker."""

    pretrained: Text
    """Hub name or folder of a released re-ranker of this `kind`: a cross-encoder with one label, or two whose names say
    which means relevant; a language model that answers yes or no; a ColBERT model of PyLate, Stanford or
    sentence-transformers, or an encoder of means. Lengths come from its files; keys set here override them. With
    `training`, it is trained further."""
    depth: int = Field(1000, ge=1, le=100_000)
    """Candidates re-ranked per query, for systems that set no `depth` of their own."""
    query_length: Maybe[Tokens] = None
    """Maximum tokens of a query, special tokens included."""
    max_length: Maybe[PairTokens] = None
    """Maximum tokens of query and passage together; with late interaction or kernel pooling, of the passage."""


class ServedScoring(Served):
    """A re-ranker behind an API."""

    endpoint: Text
    """Name of a re-ranker at the same server as an encoder's `endpoint`, in Cohere's form (`/v1/rerank`: vLLM,
    llama.cpp, Jina, paid services). Each score is kept in `endpoint_cache/`; no pair is sent twice. By default, `depth`
    is 100."""
    depth: int = Field(100, ge=1, le=100_000)
    """Candidates re-ranked per query, for systems that set no `depth` of their own."""


class Scored(Section):
    """Lengths of the input of a new re-ranker."""

    query_length: Tokens = 64
    """Maximum tokens of a query, special tokens included."""
    max_length: PairTokens = 512
    """Maximum tokens of query and passage together; with late interaction or kernel pooling, of the passage."""


class Head(Section):
    """Setting of a cross-encoder."""

    head: Literal["classification", "linear"] = "classification"
    """Of a cross-encoder: the `classification` head of transformers for this type of model, or one `linear` layer on
    [CLS] (CoRT, section 4.3.1)."""


class TokenSettings(Section):
    """Settings of late interaction."""

    dimension: int = Field(64, ge=1, le=65_536)
    """Late interaction: size of token vectors."""
    similarity: Literal["cosine", "dot", "l2"] = "cosine"
    """Late interaction: cosine or inner product (`dot`) of token vectors, or negative squared distance of unit vectors
    (`l2`), which ranks like the cosine."""
    term_weights: bool = False
    """Late interaction: learn a weight for each query token."""
    fill_queries: bool = False
    """Late interaction: pad queries with mask tokens to `query_length`, as ColBERT does."""
    skip_punctuation: bool = False
    """Late interaction: ignore punctuation in passages, as ColBERT does."""


class Filters(Section):
    """Convolutions over n-grams."""

    filters: int = Field(128, ge=1, le=65_536)
    """Conv-KNRM: size of n-gram vectors."""


class PairLearning(Checkpoint):
    """What trained re-rankers have in common."""

    recipe: Literal["paper", "small"] = "paper"
    """Default values for training, as for encoders."""
    training: Training = Field(default_factory=Training)
    """Hyper-parameters of the optimisation."""
    pairs: AnyPairs = Field(default_factory=Pairs)
    """Where training pairs come from."""

    @property
    def examples(self) -> AnyPairs:
        """Where training examples come from."""
        return self.pairs

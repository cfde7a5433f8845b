"""The collection, its splits and public files."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, TypeAlias

from pydantic import AfterValidator, Field

from cort.config.fields import Listed, one_or_more
from cort.runtime.sections import FIRST_FITTING, MEASURE, SPEED, UNIQUE, Maybe, Names, Section, Several, Text, by_name

# Parts of documents that become queries; they are removed from the index.
COPIED = ("titles", "headings", "sentences")
# Parts of topics, joined with +.
PARTS = r"^(title|description|narrative)(\+(title|description|narrative))*$"


class Downloads(Section):
    """Files that are downloaded."""

    folder: Annotated[str, SPEED] = ""
    """Folder with files that you already have, as archives or extracted: they are verified and used instead of
    downloads."""


class Pydocs(Section):
    """Build passages, queries and judgements from the docstrings of Python and the locked packages."""

    min_query_words: int = Field(4, ge=1, le=1000)
    """Minimum words of a summary that becomes a query."""
    max_query_words: int = Field(30, ge=1, le=1000)
    """Maximum words of a summary that becomes a query."""
    min_passage_words: int = Field(20, ge=1, le=1000)
    """Minimum words of a body that becomes a passage."""
    validation_queries: int = Field(500, ge=1, le=1_000_000)
    """Queries drawn for the split `validation`."""
    test_queries: int = Field(1000, ge=1, le=1_000_000)
    """Queries drawn for the split `test`."""


class Aggregation(Section):
    """How rankings of passages become rankings of documents."""

    aggregate: Literal["none", "max", "first", "mean3"] = "none"
    """What is measured: passages (`none`), or documents, scored by their best retrieved passage (`max`, the default if
    documents are divided into passages here), their first one (`first`), or the mean of the best three (`mean3`).
    Passage 3 of the document `guide/a.md` is `guide/a.md#3`. Judgements then name documents and cannot train models."""

    #: the key of the documents; None for docstrings, or a file of passages as they are
    source: ClassVar[str | None] = None

    @property
    def division(self) -> Passages | None:
        """How documents are divided into passages, if they are."""
        passages = getattr(self, "passages", None)
        return passages if isinstance(passages, Passages) else None


class Passages(Section):
    """How documents are divided into passages."""

    words: int = Field(150, ge=10, le=10_000)
    """Maximum words of a passage, which ends where a sentence or paragraph does, if possible."""
    overlap: int = Field(50, ge=0, le=5000)
    """Maximum words that a passage repeats from the one before: its last sentences."""
    headings: bool = True
    """Begin each passage with the title and headings above it, which do not count as words."""


class Fields(Section):
    """Names of the fields of CSV, TSV with a header, JSON lines and Parquet."""

    id: Maybe[Text] = None
    """Field with the id; by default the first of `_id`, `id`, `pid`, `docid`, `doc_id`, `docno`."""
    title: Maybe[Text] = None
    """Field with the title; by default `title`."""
    text: Several[Text] = ()
    """Fields that are joined to the text; by default the first of `text`, `contents`, `passage`, `body`, `segment`."""


class PassageFile(Aggregation):
    """A file of passages."""

    passages: Text | Listed | Passages
    """File of passages, a list, or a pattern such as `data/*.jsonl.gz`, in any format of docs/collections.md. Or,
    beside another source, how its documents are divided into passages; those of `documents` and `folder` always are.
    The passages of the document `x` are `x#0`, `x#1` and so on."""
    fields: Maybe[Fields] = None
    """Names of the fields of rows, where they are not recognised."""


class Divided(Aggregation):
    """Documents, and how they are divided into passages."""

    passages: Maybe[Text | Listed | Passages] = None
    """File of passages, a list, or a pattern such as `data/*.jsonl.gz`, in any format of docs/collections.md. Or,
    beside another source, how its documents are divided into passages; those of `documents` and `folder` always are.
    The passages of the document `x` are `x#0`, `x#1` and so on."""


class DocumentFile(Divided):
    """A file of documents."""

    source = "documents"
    documents: Text | Listed
    """File of documents, a list, or a pattern, in the same formats."""
    fields: Maybe[Fields] = None
    """Names of the fields of rows, where they are not recognised."""


class Folder(Divided):
    """A folder."""

    source = "folder"
    folder: Text
    """Folder of files, read recursively (formats: docs/collections.md); each is a document whose id is its path in the
    folder."""
    ids: Maybe[Literal["path", "stem"]] = None
    """With `folder`, the id of a document: its path (the default), or the file's name without folders and suffix
    (`stem`)."""
    fields: Maybe[Fields] = None
    """Names of the fields of rows, where they are not recognised."""


class IrCollection(Divided):
    """A collection of ir_datasets."""

    source = "irds"
    irds: Text
    """Collection of ir_datasets, such as `beir/scifact`."""


class HubCollection(Divided):
    """A collection on Hugging Face."""

    source = "hf"
    hf: Text
    """Collection on Hugging Face in the layout of BEIR or MTEB, `NAME@COMMIT` with all 40 digits, or a local folder of
    this layout. `NAME@COMMIT#PART` is one of several: `PART-corpus`, or `corpus/PART-*.parquet`."""


class Docstrings(Aggregation):
    """Docstrings."""

    pydocs: Pydocs
    """Make passages, queries and judgements from the docstrings of Python and the locked packages."""


#: where the passages come from: one of `passages` (a file), `documents`, `folder`, `irds`, `hf` and `pydocs`
Collection: TypeAlias = Annotated[
    Folder | DocumentFile | IrCollection | HubCollection | Docstrings | PassageFile, FIRST_FITTING
]


class Lengths(Section):
    """Lengths of generated queries."""

    min_words: int = Field(3, ge=1, le=1000)
    """Minimum words of a query."""
    max_words: int = Field(64, ge=1, le=1000)
    """Maximum words of a query."""


class Generate(Lengths):
    """Make queries and judgements from the documents of the collection."""

    from_: Text = Field(alias="from")
    """What becomes a query: titles of documents (`titles`), `headings`, or the first sentence of each passage
    (`sentences`). The passages below it, or their document, are relevant, and text used as a query is removed from the
    index. Or a language model's answer about random passages (`endpoint`), or the first predicted query of each passage
    (`expanders.NAME`); the index then keeps all words."""


class Judge(Section):
    """Let a language model judge what systems retrieve."""

    split: Text
    """Split whose queries are judged, with or without judgements of its own."""
    depth: int = Field(10, ge=1, le=1000)
    """Judge the top results of all systems to this depth, with grades from 0 (unrelated) to 3 (has the exact answer);
    `relevance_level` is then 2 by default."""


class RequestLimits(Section):
    """Limits on what a job asks a server."""

    max_requests: Annotated[int, SPEED] = Field(1000, ge=0, le=1_000_000_000)
    """A job that needs more uncached answers than this ends before its first request."""
    requests_per_minute: Annotated[Maybe[int], SPEED] = Field(None, ge=1, le=1_000_000)
    """Maximum requests per minute."""
    at_once: Annotated[int, SPEED] = Field(4, ge=1, le=1000)
    """Maximum requests under way at once."""


class LanguageModel(RequestLimits):
    """A language model behind an API."""

    model: Text
    """Name of the language model at the server."""


#: how tokens are counted before a server tells, whose tokenizer nobody else knows
BYTES_PER_TOKEN = 4


class TextLimits(RequestLimits):
    """Limits on what a job asks a service of vectors or scores."""

    max_tokens: Annotated[int, SPEED] = Field(10_000_000, ge=0, le=1_000_000_000_000)
    """A job that needs vectors or scores of more tokens than this, counted as 4 bytes each, ends before its first
    request. A pair has the tokens of its query, too."""
    texts_per_request: Annotated[int, SPEED] = Field(32, ge=1, le=2048)
    """Maximum texts whose vectors are asked for in one request, or passages scored for a query."""
    tokens_per_request: Annotated[int, SPEED] = Field(8000, ge=1, le=1_000_000)
    """Maximum tokens of such a request, counted likewise, unless one text or pair alone has more."""


class Endpoint(TextLimits):
    """A server with OpenAI's interface (llama.cpp, vLLM, Ollama, paid services)."""

    model: Maybe[Text] = None
    """Name of the language model at the server, whose address and key come from the environment: OPENAI_BASE_URL and
    OPENAI_API_KEY. Encoders and re-rankers with `endpoint` name their own model, and share the limits below."""


class Topics(Section):
    """How topics become queries."""

    field: str = Field("title", pattern=PARTS)
    """Part of a topic that is the query: `title`, `description`, `narrative`, or several, as in `title+description`."""


class AnySplit(Section):
    """A set of queries."""

    #: whether it comes from a source of queries and judgements, not from files; whether they are copied, not made here
    is_imported: ClassVar[bool] = False
    is_copied: ClassVar[bool] = False

    topics: Maybe[Topics] = None
    """How TREC topics become queries."""
    numbered: bool = False
    """Queries without ids are known by their line numbers, as in the judgements. Without judgements, or with those made
    in the explorer, they always are."""
    ignore_own: bool = False
    """Drop results with the id of the query, before runs are cut to their depth, as BEIR does where queries are
    documents (ArguAna, Quora)."""
    exclude: Maybe[Text] = None
    """File of results to drop likewise: lines of query_id and doc_id, or rows with field names."""
    unknown: Literal["refuse", "keep"] = "refuse"
    """What happens if the collection lacks more than half of the judged documents, as a sample does. If kept, they
    count as not retrieved, as a smaller share always does."""
    relevance_level: int = Field(1, ge=1, le=1000)
    """Lowest relevant grade (trec_eval's `-l`); nDCG uses the grades themselves, of which those below 0 count as 0."""
    measures: Annotated[Maybe[Several[Text]], MEASURE, UNIQUE] = Field(None, min_length=1)
    """Measures of this split; by default `evaluation.measures`."""
    published: Maybe[
        Annotated[dict[Text, dict[Text, Annotated[float, Field(ge=0, le=1)]]], AfterValidator(by_name)]
    ] = None
    """Published means for this split, by system and measure, which `make matrix` shows beside ours."""
    group: Maybe[Text] = None
    """In a matrix, splits of the same group are one column, their mean, such as the twelve forums of CQADupStack."""
    unjudged_queries: Literal["drop", "keep"] = "drop"
    """Drop queries without judgements, or keep them: ranked and shown, but not measured."""

    def files(self, table: str) -> list[str]:
        """List the files of `queries`, `qrels` or `exclude`; none if it names none."""
        return one_or_more(getattr(self, table, None) or [])

    @property
    def left_out(self) -> list[str]:
        """The splits under `without`."""
        return one_or_more(getattr(self, "without", None) or [])


class HeldOut(AnySplit):
    """A split that is held out."""

    hold_out: int = Field(ge=1, le=1_000_000_000)
    """Move this many random judged queries from `train` to this split, which then needs no files."""


class Whole(AnySplit):
    """A split of whole files."""

    without: Annotated[Maybe[Text | Listed], Names("splits")] = None
    """Split, or a list, whose queries are left out of this one: those with the same text, ignoring case."""
    sample: Maybe[int] = Field(None, ge=1, le=1_000_000_000)
    """Keep at most this many queries, drawn at random from the judged ones, or from all with `unjudged_queries: keep`.
    """


class Generated(Whole):
    """A generated split."""

    is_imported = True
    generate: Generate
    """Instead of files, make queries and judgements from the documents, which are divided among the splits with this
    key. `endpoint` needs a `sample`, the number of passages to ask about. With `titles`, `headings` or `sentences`, all
    splits must be generated in this way."""


class Judged(Whole):
    """A judged split."""

    is_imported = True
    # Grade 1 of a language model is related, and answers nothing.
    relevance_level: int = Field(2, ge=1, le=1000)
    """Lowest relevant grade (trec_eval's `-l`); nDCG uses the grades themselves, of which
    those below 0 count as 0. 2 for grades of a language model."""

    judge: Judge
    """Instead of files, take the queries of another split, and let the model of `endpoint` judge what systems retrieve.
    """


class Labelled(Whole):
    """A split with judgements from elsewhere."""

    labels: Maybe[Literal["human", "LLM"]] = None
    """Who judged: people (`human`, the default) or a language model (`LLM`), as tables, figures and verdicts then say.
    """


class IrSplit(Labelled):
    """A split of ir_datasets."""

    is_imported = is_copied = True
    irds: Text
    """Instead of files, queries and judgements of ir_datasets, such as `beir/scifact/test`."""


class HubSplit(Labelled):
    """A split on Hugging Face."""

    is_imported = is_copied = True
    hf: Text
    """Instead of files, a split of the collection's `hf`, such as `test`; or `NAME@COMMIT#test`, if another dataset has
    the judgements, as `BeIR/scifact-qrels` does."""


class JudgedQueries(Labelled):
    """Queries with judgements."""

    queries: Text | Listed
    """File of queries, or a list, in any format of docs/collections.md."""
    qrels: Text | Listed
    """File of judgements, or a list, in any format of docs/collections.md. A split without judgements is ranked and
    shown, not measured."""


class Queries(Whole):
    """Queries without judgements."""

    queries: Text | Listed
    """File of queries, or a list, in any format of docs/collections.md."""


class NoQueries(Whole):
    """A split without queries."""


#: a set of queries, with judgements or without
Split: TypeAlias = Annotated[
    HeldOut | Generated | Judged | IrSplit | HubSplit | JudgedQueries | Queries | NoQueries, FIRST_FITTING
]

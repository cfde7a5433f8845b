"""The collection, its splits and public files."""

from __future__ import annotations

from typing import Literal

from cort.runtime.keys import section, setting

# Parts of documents that become queries; they are removed from the index.
COPIED = ("titles", "headings", "sentences")
# Parts of topics, joined with +.
PARTS = r"^(title|description|narrative)(\+(title|description|narrative))*$"


@section
class Downloads:
    """Files that are downloaded."""

    folder: str = setting("", may_be_empty=True, affects_results=False)
    """Folder with files that you already have, as archives or extracted: they are verified and used instead of
    downloads."""


@section
class Pydocs:
    """Build passages, queries and judgements from the docstrings of Python and the locked packages."""

    min_query_words: int = setting(4, "shorter summaries are dropped", ge=1, le=1000)
    """Minimum words of a summary that becomes a query."""
    max_query_words: int = setting(30, "longer summaries are dropped", ge=1, le=1000)
    """Maximum words of a summary that becomes a query."""
    min_passage_words: int = setting(20, "shorter bodies are dropped", ge=1, le=1000)
    """Minimum words of a body that becomes a passage."""
    validation_queries: int = setting(500, "queries to validate with", "N", ge=1, le=1_000_000)
    """Queries drawn for the split `validation`."""
    test_queries: int = setting(1000, "queries to test with", "N", ge=1, le=1_000_000)
    """Queries drawn for the split `test`."""


@section
class Aggregation:
    """How rankings of passages become rankings of documents."""

    aggregate: Literal["none", "max", "first", "mean3"] = setting("none", "how passages are aggregated to documents")
    """What is measured: passages (`none`), or documents, scored by their best retrieved passage (`max`, the default if
    documents are divided into passages here), their first one (`first`), or the mean of the best three (`mean3`).
    Passage 3 of the document `guide/a.md` is `guide/a.md#3`. Judgements then name documents and cannot train models."""


@section
class Passages:
    """How documents are divided into passages."""

    words: int = setting(150, "maximum length of a passage in words", "N", ge=10, le=10_000)
    """Maximum words of a passage, which ends where a sentence or paragraph does, if possible."""
    overlap: int = setting(50, "words that a passage repeats at most from the one before", "N", ge=0, le=5000)
    """Maximum words that a passage repeats from the one before: its last sentences."""
    headings: bool = setting(True, "begin each passage with title and headings")
    """Begin each passage with the title and headings above it, which do not count as words."""


@section
class Fields:
    """Names of the fields of CSV, TSV with a header, JSON lines and Parquet."""

    id: str | None = setting(None, "field with the id of a row", "NAME")
    """Field with the id; by default the first of `_id`, `id`, `pid`, `docid`, `doc_id`, `docno`."""
    title: str | None = setting(None, "field with the title of a row", "NAME")
    """Field with the title; by default `title`."""
    text: tuple[str, ...] = setting((), "fields with the text of a row", "NAME")
    """Fields that are joined to the text; by default the first of `text`, `contents`, `passage`, `body`, `segment`."""


@section
class Collection(Aggregation):
    """Where the passages come from: one of `passages` (a file), `documents`, `folder`, `irds`, `hf` and `pydocs`."""

    passages: str | tuple[str, ...] | Passages | None = setting(None, least=1)
    """File of passages, a list, or a pattern such as `data/*.jsonl.gz`, in any format of docs/collections.md. Or,
    beside another source, how its documents are divided into passages; those of `documents` and `folder` always are.
    The passages of the document `x` are `x#0`, `x#1` and so on."""
    documents: str | tuple[str, ...] | None = setting(None, least=1)
    """File of documents, a list, or a pattern, in the same formats."""
    folder: str | None = None
    """Folder of files, read recursively (formats: docs/collections.md); each is a document whose id is its path in the
    folder."""
    ids: Literal["path", "stem"] | None = setting(
        None, "ids of a folder's documents: paths of files (default), or names without folders and suffix"
    )
    """With `folder`, the id of a document: its path (the default), or the file's name without folders and suffix
    (`stem`)."""
    fields: Fields | None = None
    """Names of the fields of rows, where they are not recognised."""
    irds: str | None = setting(None, "collection in ir_datasets", "NAME")
    """Collection of ir_datasets, such as `beir/scifact`."""
    hf: str | None = setting(None, "collection on Hugging Face, or in a folder of that layout", "NAME@COMMIT")
    """Collection on Hugging Face in the layout of BEIR or MTEB, `NAME@COMMIT` with all 40 digits, or a local folder of
    this layout. `NAME@COMMIT#PART` is one of several: `PART-corpus`, or `corpus/PART-*.parquet`."""
    pydocs: Pydocs | None = None
    """Make passages, queries and judgements from the docstrings of Python and the locked packages."""


@section
class Lengths:
    """Lengths of generated queries."""

    min_words: int = setting(3, "shorter queries are dropped", "N", ge=1, le=1000)
    """Minimum words of a query."""
    max_words: int = setting(64, "longer queries are dropped", "N", ge=1, le=1000)
    """Maximum words of a query."""


@section
class Generate(Lengths):
    """Make queries and judgements from the documents of the collection."""

    from_: str = setting()
    """What becomes a query: titles of documents (`titles`), `headings`, or the first sentence of each passage
    (`sentences`). The passages below it, or their document, are relevant, and text used as a query is removed from the
    index. Or a language model's answer about random passages (`endpoint`), or the first predicted query of each passage
    (`expanders.NAME`); the index then keeps all words."""


@section
class Judge:
    """Let a language model judge what systems retrieve."""

    split: str
    """Split whose queries are judged, with or without judgements of its own."""
    depth: int = setting(10, "judge the top results of each run, to this depth", "N", ge=1, le=1000)
    """Judge the top results of all systems to this depth, with grades from 0 (unrelated) to 3 (has the exact answer);
    `relevance_level` is then 2 by default."""


@section
class Endpoint:
    """A server of a language model, with OpenAI's interface (llama.cpp, vLLM, Ollama, paid services)."""

    model: str
    """Name of the model at the server, whose address and key come from the environment: OPENAI_BASE_URL and
    OPENAI_API_KEY."""
    max_requests: int = setting(
        1000, "refuse to send more requests", "N", ge=0, le=1_000_000_000, affects_results=False
    )
    """A job that needs more uncached answers than this ends before its first request."""
    requests_per_minute: int | None = setting(
        None, "requests per minute (default: no limit)", "N", ge=1, le=1_000_000, affects_results=False
    )
    """Maximum requests per minute."""
    at_once: int = setting(4, "requests under way at once", "N", ge=1, le=1000, affects_results=False)
    """Maximum requests under way at once."""


@section
class Topics:
    """How topics become queries."""

    field: str = setting("title", "part of a topic that is the query", "NAME", pattern=PARTS)
    """Part of a topic that is the query: `title`, `description`, `narrative`, or several, as in `title+description`."""


@section
class Split:
    """A set of queries, with judgements or without."""

    queries: str | tuple[str, ...] | None = setting(None, least=1)
    """File of queries, or a list, in any format of docs/collections.md."""
    topics: Topics | None = None
    """How TREC topics become queries."""
    numbered: bool = setting(False, "queries without ids have the number of their row, also if there are judgements")
    """Queries without ids are known by their line numbers, as in the judgements. Without judgements, or with those made
    in the explorer, they always are."""
    qrels: str | tuple[str, ...] | None = setting(None, least=1)
    """File of judgements, or a list, in any format of docs/collections.md. A split without judgements is ranked and
    shown, not measured."""
    irds: str | None = setting(None, "queries and judgements in ir_datasets", "NAME")
    """Instead of files, queries and judgements of ir_datasets, such as `beir/scifact/test`."""
    hf: str | None = None
    """Instead of files, a split of the collection's `hf`, such as `test`; or `NAME@COMMIT#test`, if another dataset has
    the judgements, as `BeIR/scifact-qrels` does."""
    generate: Generate | None = None
    """Instead of files, make queries and judgements from the documents, which are divided among the splits with this
    key. `endpoint` needs a `sample`, the number of passages to ask about. With `titles`, `headings` or `sentences`, all
    splits must be generated in this way."""
    judge: Judge | None = None
    """Instead of files, take the queries of another split, and let the model of `endpoint` judge what systems retrieve.
    """
    labels: Literal["human", "LLM"] | None = None
    """Who judged: people (`human`, the default) or a language model (`LLM`), as tables, figures and verdicts then say.
    """
    without: str | tuple[str, ...] | None = setting(None, names="splits", least=1)
    """Split, or a list, whose queries are left out of this one: those with the same text, ignoring case."""
    ignore_own: bool = setting(False, "drop results with the id of the query")
    """Drop results with the id of the query, before runs are cut to their depth, as BEIR does where queries are
    documents (ArguAna, Quora)."""
    exclude: str | None = None
    """File of results to drop likewise: lines of query_id and doc_id, or rows with field names."""
    unknown: Literal["refuse", "keep"] = setting("refuse", "judgements of which most documents are absent")
    """What happens if the collection lacks more than half of the judged documents, as a sample does. If kept, they
    count as not retrieved, as a smaller share always does."""
    sample: int | None = setting(
        None, "keep at most N of the remaining queries, drawn at random", "N", ge=1, le=1_000_000_000
    )
    """Keep at most this many queries, drawn at random from the judged ones, or from all with `unjudged_queries: keep`.
    """
    hold_out: int | None = setting(None, "hold out N judged queries, drawn at random", "N", ge=1, le=1_000_000_000)
    """Move this many random judged queries from `train` to this split, which then needs no files."""
    relevance_level: int = setting(1, "lowest relevant grade", "GRADE", ge=1, le=1000)
    """Lowest relevant grade (trec_eval's `-l`); nDCG uses the grades themselves, of which those below 0 count as 0."""
    measures: tuple[str, ...] | None = setting(None, measures=True, unique=True, least=1)
    """Measures of this split; by default `evaluation.measures`."""
    published: dict[str, dict[str, float]] | None = setting(None, ge=0, le=1)
    """Published means for this split, by system and measure, which `make matrix` shows beside ours."""
    group: str | None = None
    """In a matrix, splits of the same group are one column, their mean, such as the twelve forums of CQADupStack."""
    unjudged_queries: Literal["drop", "keep"] = setting("drop", "queries without judgements (default: drop)")
    """Drop queries without judgements, or keep them: ranked and shown, but not measured."""

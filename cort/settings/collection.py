"""The collection, its splits and public files."""

from __future__ import annotations

from typing import Literal

from cort.runtime.keys import section, setting

# Parts of documents that become queries; the index lacks them.
COPIED = ("titles", "headings", "sentences")
# Parts of topics, joined with +.
PARTS = r"^(title|description|narrative)(\+(title|description|narrative))*$"


@section
class Downloads:
    """Files that are downloaded."""

    folder: str = setting("", may_be_empty=True, affects_results=False)
    """Folder with files that you already have, as archives or extracted; they are verified and used instead of
    downloads. Empty for none."""


@section
class Pydocs:
    """Build passages, queries and judgements from the docstrings of Python and the locked packages."""

    min_query_words: int = setting(4, "shorter summaries are dropped", ge=1, le=1000)
    """Minimum length, in words, of a summary paragraph that becomes a query."""
    max_query_words: int = setting(30, "longer summaries are dropped", ge=1, le=1000)
    """Maximum length, in words, of a summary paragraph that becomes a query."""
    min_passage_words: int = setting(20, "shorter bodies are dropped", ge=1, le=1000)
    """Minimum length, in words, of a docstring body that becomes a passage."""
    validation_queries: int = setting(500, "queries to validate with", "N", ge=1, le=1_000_000)
    """Queries drawn for the split `validation`."""
    test_queries: int = setting(1000, "queries to test with", "N", ge=1, le=1_000_000)
    """Queries drawn for the split `test`."""


@section
class Aggregation:
    """How rankings of passages become rankings of documents."""

    aggregate: Literal["none", "max", "first", "mean3"] = setting("none", "how passages are aggregated to documents")
    """What is measured: passages (`none`), or documents, by the score of their best passage that was retrieved (`max`),
    of the first one (`first`), or the mean of the best three (`mean3`). The document of a passage is its id up to the
    last `#`: `docs/a.md#3` is passage 3 of `docs/a.md`. Judgements then name documents, and cannot train models. If
    documents are divided into passages here, the default is `max`."""


@section
class Passages:
    """How documents are divided into passages."""

    words: int = setting(150, "maximum length of a passage in words", "N", ge=10, le=10_000)
    """Maximum length of a passage in words. Passages end where sentences or paragraphs do, if possible."""
    overlap: int = setting(50, "words that a passage repeats at most from the one before", "N", ge=0, le=5000)
    """Maximum number of words that a passage repeats from the one before: its last sentences."""
    headings: bool = setting(True, "begin each passage with title and headings")
    """Begin each passage with the title of its document and the headings above it, which count as no words."""


@section
class Fields:
    """Names of the fields of CSV, TSV with a header, JSON lines and Parquet."""

    id: str | None = setting(None, "field with the id of a row", "NAME")
    """Field with the id of a row; if not set, the first of `_id`, `id`, `pid`, `docid`, `doc_id` and `docno`."""
    title: str | None = setting(None, "field with the title of a row", "NAME")
    """Field with the title of a row; if not set, `title`."""
    text: tuple[str, ...] = setting((), "fields with the text of a row", "NAME")
    """Fields with the text of a row, which follow each other; if not set, the first of `text`, `contents`, `passage`,
    `body` and `segment`."""


@section
class Collection(Aggregation):
    """Where the passages come from: one of `passages` (a file), `documents`, `folder`, `irds`, `hf` and `pydocs`."""

    passages: str | tuple[str, ...] | Passages | None = setting(None, least=1)
    """File of passages, a list, or a pattern such as `data/*.jsonl.gz`. The content tells the format: `doc_id TAB text`
    (MS MARCO), rows with names of fields (JSON lines of BEIR, pyserini, Tevatron or MS MARCO v2, CSV, TSV, Parquet),
    `<DOC>` (TREC), `.I` (SMART); plain, gzip, bzip2, xz or zstd. Or, beside another source, how its
    documents are divided into passages; those of `documents` and `folder` always are. The passages of the document `x`
    are `x#0`, `x#1` and so on."""
    documents: str | tuple[str, ...] | None = setting(None, least=1)
    """File of documents, a list, or a pattern, in the formats of files of passages."""
    folder: str | None = None
    """Folder of files, read recursively; each is a document whose id is its path in the folder: Markdown, HTML, plain
    text, reStructuredText, PDF, notebooks (`.ipynb`), Word, PowerPoint, Excel and EPUB (`pip install
    'markitdown[docx,pptx,xlsx]'`), and CSV, TSV, JSON lines or Parquet with a document per row."""
    ids: Literal["path", "stem"] | None = setting(
        None, "ids of a folder's documents: paths of files (default), or names without folders and suffix"
    )
    """With `folder`, the id of a document: the path of its file (`path`, if not set), or the name of the file without
    folders and suffix (`stem`), as judgements may name it: `html/CACM-0001.html` is `CACM-0001`."""
    fields: Fields | None = None
    """With files or `folder`, the names of the fields of rows, where they are not found."""
    irds: str | None = setting(None, "collection in ir_datasets", "NAME")
    """Name of a collection in ir_datasets, such as `beir/scifact`."""
    hf: str | None = setting(None, "collection on Hugging Face, or in a folder of that layout", "NAME@COMMIT")
    """Collection on Hugging Face in the layout of BEIR or MTEB, `NAME@COMMIT` with all 40 digits, or a local folder of
    this layout. Of several in one dataset, `NAME@COMMIT#PART` is one: `PART-corpus`, or `corpus/PART-*.parquet`."""
    pydocs: Pydocs | None = None
    """Build passages, queries and judgements from the docstrings of Python and the locked packages."""


@section
class Lengths:
    """Lengths of generated queries."""

    min_words: int = setting(3, "shorter queries are dropped", "N", ge=1, le=1000)
    """Minimum length of a query in words."""
    max_words: int = setting(64, "longer queries are dropped", "N", ge=1, le=1000)
    """Maximum length of a query in words."""


@section
class Generate(Lengths):
    """Make queries and judgements from the documents of the collection."""

    from_: str = setting()
    """What becomes a query: titles of documents (`titles`), `headings`, or the first sentence of each passage
    (`sentences`); relevant are the passages below it, or their document (`aggregate`), and the index lacks what queries
    are made of. Or what a language model answers about passages drawn at random (`endpoint`), or the first predicted
    query of each passage (`expanders.NAME`); the index then has all words."""


@section
class Judge:
    """Let a language model judge what systems retrieve."""

    split: str
    """Split whose queries are judged, with or without judgements of its own."""
    depth: int = setting(10, "judge the top results of each run, to this depth", "N", ge=1, le=1000)
    """The top results of all systems on that split are judged, to this depth, with grades from 0 (nothing to do with
    the query) to 3 (has the exact answer); `relevance_level` is 2 if not set."""


@section
class Endpoint:
    """A server of a language model, with OpenAI's interface (llama.cpp, vLLM, Ollama, paid services)."""

    model: str
    """Name of the model at the server. Address and key of the server come from the environment: OPENAI_BASE_URL and, if
    it needs one, OPENAI_API_KEY."""
    max_requests: int = setting(
        1000, "refuse to send more requests", "N", ge=0, le=1_000_000_000, affects_results=False
    )
    """If a job needs more requests than this for answers that are not cached, it ends before the first."""
    requests_per_minute: int | None = setting(
        None, "requests per minute (default: no limit)", "N", ge=1, le=1_000_000, affects_results=False
    )
    """Maximum number of requests per minute; if not set, there is none."""
    at_once: int = setting(4, "requests under way at once", "N", ge=1, le=1000, affects_results=False)
    """Maximum number of requests under way at once."""


@section
class Topics:
    """How topics become queries."""

    field: str = setting("title", "part of a topic that is the query", "NAME", pattern=PARTS)
    """Part of a topic that is the query: `title`, `description`, `narrative`, or several, as in `title+description`."""


@section
class Split:
    """A set of queries, with judgements or without."""

    queries: str | tuple[str, ...] | None = setting(None, least=1)
    """File of queries, or a list. The content tells the format: `query_id TAB text` (MS MARCO), rows with names of
    fields (BEIR's `queries.jsonl`, CSV, Parquet), topics of TREC (SGML or XML) or SMART, a query per line without TABs
    (`numbered`), or TREC-CAR's `.qrels`, whose first column names the topics."""
    topics: Topics | None = None
    """How topics of TREC become queries."""
    numbered: bool = setting(False, "queries without ids have the number of their row, also if there are judgements")
    """Queries in lines without ids have the number of the line as their id, as the judgements must have, too. Without
    judgements, or with those made in the explorer, they always do."""
    qrels: str | tuple[str, ...] | None = setting(None, least=1)
    """File of judgements, or a list: lines of `query 0 doc grade` (TREC), columns with a header (BEIR; without one of
    grades, all are 1), SMART's, Parquet; or JSON lines of `{"query_id": ..., "text": ..., "relevance": ...}`, which
    judge the passages that begin with that text, or their documents, or what `python -m cort.explore --judgements`
    wrote. A split without judgements is ranked and shown, not measured."""
    irds: str | None = setting(None, "queries and judgements in ir_datasets", "NAME")
    """Instead of files, the name of queries and judgements in ir_datasets, such as `beir/scifact/test`."""
    hf: str | None = None
    """Instead of files, the name of a split of the collection's `hf`, such as `test`; or `NAME@COMMIT#test`, if another
    dataset has the judgements, as `BeIR/scifact-qrels` has those of `BeIR/scifact`."""
    generate: Generate | None = None
    """Instead of files, make queries and judgements from the documents of the collection, which are divided among the
    splits of the experiment that are made like this. Those with `endpoint` need a `sample`, the number of passages
    that are asked about. With `titles`, `headings` or `sentences`, all splits are made like this."""
    judge: Judge | None = None
    """Instead of files, take the queries of another split, and let the model of `endpoint` judge what systems retrieve.
    """
    labels: Literal["human", "LLM"] | None = None
    """Who judged: if not set, people (`human`). Tables, figures and verdicts name labels of a language model (`LLM`).
    """
    without: str | tuple[str, ...] | None = setting(None, names="splits", least=1)
    """Split, or a list, whose queries are left out of this one: those with the same text, ignoring case."""
    ignore_own: bool = setting(False, "drop results with the id of the query")
    """Whether results with the id of the query are dropped from all runs, before these are cut to their depth, as BEIR
    does where queries are documents of the collection (ArguAna, Quora)."""
    exclude: str | None = None
    """File of results that are dropped likewise: lines of query_id and doc_id, separated by a TAB or spaces, or rows
    with names of fields, as `qrels` has."""
    unknown: Literal["refuse", "keep"] = setting("refuse", "judgements of which most documents are absent")
    """What happens if the collection lacks more than half of the judged documents, as a sample does. If kept, they
    count as not retrieved, as fewer do."""
    sample: int | None = setting(
        None, "keep at most N of the remaining queries, drawn at random", "N", ge=1, le=1_000_000_000
    )
    """Keep at most this many queries, drawn at random from the judged ones, or from all if `unjudged_queries` is
    `keep`."""
    hold_out: int | None = setting(None, "hold out N judged queries, drawn at random", "N", ge=1, le=1_000_000_000)
    """Draw this many judged queries from the split `train` instead of reading files, and remove them from `train`."""
    relevance_level: int = setting(1, "lowest relevant grade", "GRADE", ge=1, le=1000)
    """Lowest grade that counts as relevant (trec_eval's `-l`); nDCG uses the grades themselves."""
    measures: tuple[str, ...] | None = setting(None, measures=True, unique=True, least=1)
    """Measures of this split, named as ir_measures names them; if not set, those of `evaluation.measures`."""
    published: dict[str, dict[str, float]] | None = setting(None, ge=0, le=1)
    """Means that others published for this split, by system and measure; `make matrix` shows them beside ours."""
    group: str | None = None
    """In a matrix, splits of the same group are one column, their mean, as the twelve forums of CQADupStack are."""
    unjudged_queries: Literal["drop", "keep"] = setting("drop", "queries without judgements (default: drop)")
    """What happens to queries without judgements; if kept, they are ranked and shown, not measured."""

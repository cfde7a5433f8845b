"""The card of an exported model: Markdown with the header of the Hugging Face hub. The same input, the same bytes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import yaml

from cort import __version__
from cort.evaluation.measures import Measures
from cort.models.export import RELEASE, TRANSFORMER
from cort.models.settings import EncoderSettings, PairSettings
from cort.reporting.inputs import Filter
from cort.reporting.tables import MARKDOWN_SPECIAL, Cell, Column, Table, systems_table, to_markdown

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
WHAT = {
    "encoder": "A dense ranker: it maps queries and passages to vectors of {model.dimension} numbers, and the nearest "
    "passages of a query are its results.",
    "reranker": "A re-ranker: it reads a query and a passage together and gives one logit, higher if more relevant.",
}
SIMILARITIES = {
    "angular": "cosine, which ranks as their angle does",
    "cosine": "cosine",
    "inner_product": "inner product",
}
OBJECTIVES = {
    "triplet": "CoRT's objective: negatives are passages that another ranker, `triples.system`, finds but nobody "
    "judged relevant, so that the model complements that ranker.",
    "multilabel_margin": "RepBERT's objective: all judged passages of a batch before all others of it.",
    "info_nce": "InfoNCE: cross-entropy of the relevant passage against all passages of a batch that are not relevant.",
    "margin_mse": "Margin MSE: the differences between the scores of a relevant and another passage are those that a "
    "cross-encoder, `teacher`, gives.",
}
TASKS = {"encoder": "sentence-similarity", "reranker": "text-ranking"}
TAGS = {
    "encoder": ["sentence-transformers", "sentence-similarity", "feature-extraction", "dense", "cort"],
    "reranker": ["sentence-transformers", "cross-encoder", "reranker", "cort"],
}
SNIPPETS = {
    "encoder": """from sentence_transformers import SentenceTransformer

model = SentenceTransformer({path})
queries = model.encode_query(["what is a dense ranker"])
passages = model.encode_document(["A dense ranker compares vectors.", "Bread is baked."])
print(model.similarity(queries, passages))
""",
    "reranker": """from sentence_transformers import CrossEncoder

model = CrossEncoder({path})
query = "what is a dense ranker"
print(model.predict([(query, "A dense ranker compares vectors."), (query, "Bread is baked.")]))
""",
}
OWN_SNIPPET = """from cort.models.{module} import load_{module}

{kind}, template = load_{module}({path})
"""
OWN_MODULES = {"encoder": "encoder", "reranker": "cross_encoder"}
CITATIONS = {
    "cort": """@inproceedings{wrzalik-krechel-2021-cort,
  title     = {{CoRT}: Complementary Rankings from Transformers},
  author    = {Wrzalik, Marco and Krechel, Dirk},
  booktitle = {Proceedings of the 2021 Conference of the North American Chapter of the Association for Computational
               Linguistics: Human Language Technologies},
  year      = {2021},
  url       = {https://aclanthology.org/2021.naacl-main.331/}
}
""",
    "repbert": """@misc{zhan-etal-2020-repbert,
  title  = {{RepBERT}: Contextualized Text Embeddings for First-Stage Retrieval},
  author = {Zhan, Jingtao and Mao, Jiaxin and Liu, Yiqun and Zhang, Min and Ma, Shaoping},
  year   = {2020},
  url    = {https://arxiv.org/abs/2006.15498}
}
""",
    "reranking": """@misc{nogueira-cho-2019-passage,
  title  = {Passage Re-ranking with {BERT}},
  author = {Nogueira, Rodrigo and Cho, Kyunghyun},
  year   = {2019},
  url    = {https://arxiv.org/abs/1901.04085}
}
""",
}


@dataclass(frozen=True)
class Card:
    """What a card says.

    `form` is how texts are cleaned (`cort.formats.cleaning.FORMS`); `base` the hub's name of the base model, if it has
    one; `settings` are the experiment's for this model, `filters` its training data's by split.
    """

    name: str
    dataset: str
    form: str
    base: str | None
    revision: str | None
    settings: Mapping[str, Any]
    filters: Sequence[Filter]
    measures: Sequence[Measures]


def card_text(card: Card, model: EncoderSettings | PairSettings) -> str:
    """Write the whole file."""
    kind = "encoder" if isinstance(model, EncoderSettings) else "reranker"
    header = {"library_name": "sentence-transformers", "pipeline_tag": TASKS[kind], "tags": TAGS[kind]}
    header |= {"base_model": card.base} if card.base else {}
    packages = ", ".join(f"{name} {version(name)}" for name in PACKAGES)
    parts = [
        f"---\n{yaml.safe_dump(header, sort_keys=False)}---\n",
        f"# {_plain(card.name)}\n",
        f"{WHAT[kind].format(model=model)}\n",
        *_origin(card),
        *_use(card, model, kind),
        *_training(card),
        *_quality(card, kind),
        "## Versions\n",
        f"Made by the CoRT workflow {__version__} with {packages}, for sentence-transformers {RELEASE}.\n",
        "## Citation\n",
        *(f"```bibtex\n{CITATIONS[name]}```\n" for name in _cited(card, kind)),
    ]
    return "\n".join(parts)


def _origin(card: Card) -> Iterator[str]:
    if card.base:
        revision = f" at revision {_plain(card.revision)}" if card.revision else ""
        yield f"Base model: {_plain(card.base)}{revision}.\n"
    if "pretrained" in card.settings and "training" not in card.settings:
        yield "Its weights are those of that model; they were not trained here.\n"
    if released := card.settings.get("released"):
        yield f"Its weights were read from the released file {_plain(str(released))}; they were not trained here.\n"


def _use(card: Card, model: EncoderSettings | PairSettings, kind: str) -> Iterator[str]:
    yield "## Use\n"
    yield f"```python\n{SNIPPETS[kind].format(path=json.dumps(card.name))}```\n"
    if isinstance(model, EncoderSettings):
        yield (
            "Queries and passages are encoded differently: `encode_query` for the one, `encode_document` (or `encode`) "
            f"for the other. Vectors are compared by their {SIMILARITIES[model.similarity]}.\n"
        )
    if card.form == "fixed":
        yield "First fix wrongly decoded texts, as in training: `ftfy.fix_encoding(text)`.\n"
    if card.form == "cort":
        yield "The tokenizer leaves out all characters but ASCII letters, digits and `.,!?;/:`, as in training.\n"
    if isinstance(model, PairSettings):
        yield (
            f"Queries are cut to {model.query_length} tokens in training and in the measures here; this folder has "
            "only the limit of the pair. Cut longer queries yourself.\n"
        )
    yield "With this project, whose `encode` and `score` give the same numbers:\n"
    path = json.dumps(f"{card.name}/{TRANSFORMER}")
    yield f"```python\n{OWN_SNIPPET.format(module=OWN_MODULES[kind], kind=kind, path=path)}```\n"


def _training(card: Card) -> Iterator[str]:
    yield "## Training\n"
    yield f"Dataset: {_plain(card.dataset)}.\n"
    if card.settings.get("loss") in OBJECTIVES:
        yield f"{OBJECTIVES[card.settings['loss']]}\n"
    if card.filters:
        yield _table("split what number", [[one.name, *count] for one in card.filters for count in one.counts])
    if settings := [list(setting) for setting in _flat(card.settings)]:
        yield "Settings, as in the experiment file:\n"
        yield _table("key value", settings)


def _table(columns: str, rows: Sequence[Sequence[Cell]]) -> str:
    return to_markdown(Table([Column(name) for name in columns.split()], rows))


def _quality(card: Card, kind: str) -> Iterator[str]:
    if card.measures:
        how = "retrieves" if kind == "encoder" else "re-ranks"
        yield "## Quality\n"
        yield f"Means over all judged queries of a split, of each system that {how} with it:\n"
        yield to_markdown(systems_table(card.measures))


def _cited(card: Card, kind: str) -> list[str]:
    if kind == "reranker":
        return ["cort", "reranking"]
    return ["cort", "repbert"] if card.settings.get("loss") == "multilabel_margin" else ["cort"]


def _flat(settings: Mapping[str, Any], place: str = "") -> Iterator[tuple[str, str]]:
    for key, value in settings.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{place}{key}.")
        else:
            yield f"{place}{key}", str(value).lower() if isinstance(value, bool) else str(value)


def _plain(text: str) -> str:
    """Show untrusted text as it is: no Markdown, one line."""
    return " ".join(text.split()).translate(MARKDOWN_SPECIAL)

"""The card of an exported model: Markdown with the header of the Hugging Face hub. The same input, the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import yaml

from cort.evaluation.measures import Measures
from cort.models.export import RELEASE, TRANSFORMER
from cort.models.settings import EncoderSettings, PairSettings
from cort.reporting.page import render
from cort.reporting.tables import Cell, Column, Table, systems_table, to_markdown
from cort.settings.config import leaves

PACKAGES = ("torch", "transformers", "tokenizers", "safetensors")
TASKS = {"encoder": "sentence-similarity", "reranker": "text-ranking"}
TAGS = {
    "encoder": ["sentence-transformers", "sentence-similarity", "feature-extraction", "dense", "cort"],
    "reranker": ["sentence-transformers", "cross-encoder", "reranker", "cort"],
}


@dataclass(frozen=True)
class Card:
    """What a card says.

    `form` is how texts are cleaned (`cort.formats.cleaning.FORMS`), `base` the hub's name of the base model if it has
    one, `settings` the settings of this model in the experiment, `filters` the counts of its training data by split.
    """

    name: str
    dataset: str
    form: str
    base: str | None
    revision: str | None
    settings: Mapping[str, Any]
    filters: Mapping[str, Mapping[str, int]]
    measures: Sequence[Measures]


def card_text(card: Card, model: EncoderSettings | PairSettings) -> str:
    """Write the card."""
    kind = "encoder" if isinstance(model, EncoderSettings) else "reranker"
    header = {"library_name": "sentence-transformers", "pipeline_tag": TASKS[kind], "tags": TAGS[kind]}
    header |= {"base_model": card.base} if card.base else {}
    counts: list[list[Cell]] = [
        [split, *count] for split, outcomes in card.filters.items() for count in outcomes.items()
    ]
    settings = [
        (key, str(value).lower() if isinstance(value, bool) else str(value)) for key, value in leaves(card.settings)
    ]
    return render(
        "model_card.md.jinja",
        card=card,
        model=model,
        kind=kind,
        header=yaml.safe_dump(header, sort_keys=False),
        folder=TRANSFORMER,
        filters=to_markdown(Table([Column("split"), Column("what"), Column("number")], counts)),
        settings=to_markdown(Table([Column("key"), Column("value")], settings)) if settings else "",
        measures=to_markdown(systems_table(card.measures)),
        packages=", ".join(f"{name} {version(name)}" for name in PACKAGES),
        release=RELEASE,
    )

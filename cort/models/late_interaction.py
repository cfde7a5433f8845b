"""Late interaction: query and passage are encoded separately, and each query token is matched with a passage token.

As in ColBERT (Khattab & Zaharia, SIGIR 2020), the score is the sum over query tokens i of ``max_j sim(q_i, d_j)`` over
passage tokens j, optionally weighted by a learned weight of token i. As in ColBERT's code, vectors are normalized to
length 1 for cosine and negative squared distance. Segment ids tell queries from passages, as in CoRT (section 3.2);
ColBERT prepends a marker token instead.

On disk: a transformers folder plus ``reranker.json`` and the layers that follow the transformer.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.token_embeddings import Origin
from cort.formats.tokens import Tokens
from cort.models.batching import Frame, FramedTexts, Lengths, Rows, Sequences
from cort.models.cross_encoder import Pairs
from cort.models.loading import load_tensors, load_transformer, read_settings
from cort.models.settings import HEAD, PairSettings
from cort.models.tokenizer import Template, load_template, load_tokenizer, special_id
from cort.models.transformer import (
    TextModel,
    check_length,
    count_tokens,
    forward_by_length,
    model_fingerprint,
    single,
)
from cort.system.errors import input_error

QUERY, PASSAGE = 1, 0
# Pairs whose tokens are compared at once; the vectors of each pair are copied.
PAIRS_AT_ONCE = 1_024
# Similarity of a query token to a passage without tokens, which thus ranks last: lower than any other, however vectors
# are rounded, and for inner products of vectors up to length 65504.
LOWEST = {"cosine": -2.0, "dot": -(65504.0**2), "l2": -8.0}


class LateInteraction(TextModel):
    """Map texts to a vector per token, followed by the token's weight, which is 0 for tokens that do not count.

    :param fill: id of the token that pads queries, -1 for none; `punctuation` are ids to ignore in passages.
    """

    settings: PairSettings

    def __init__(self, transformer: Any, settings: PairSettings, fill: int, punctuation: Collection[int]) -> None:
        super().__init__(transformer, settings)
        hidden = transformer.config.hidden_size
        self.head = nn.ModuleDict({"vectors": nn.Linear(hidden, settings.dimension, bias=False)})
        if settings.term_weights:
            self.head["weights"] = nn.Linear(hidden, 1)
        self._fill = fill
        self.punctuation: Tensor
        self.register_buffer("punctuation", torch.tensor(sorted(punctuation), dtype=torch.long), persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length), all of one segment.

        :returns: (batch, width, dimension + 1), padded to the maximum length of a query or passage.
        """
        ids, mask = batch["input_ids"], batch["attention_mask"]
        is_query = bool(batch["token_type_ids"][0, 0] == QUERY)
        # As in ColBERT, no token attends to the mask tokens that pad a query, but they take part in matching.
        attended = {**batch, "attention_mask": mask * (ids != self._fill)}
        states = single(self.states(attended))
        vectors = single(self.head["vectors"](states))  # (batch, length, dimension)
        if self.settings.similarity != "dot":
            vectors = functional.normalize(vectors, dim=-1)
        counts = mask.to(vectors.dtype)  # (batch, length)
        if not is_query:
            counts = counts * ~torch.isin(ids, self.punctuation)
        elif "weights" in self.head:
            counts = counts * functional.softplus(single(self.head["weights"](states))).squeeze(-1)
        width = self.settings.query_length if is_query else self.settings.max_length
        weighted = torch.cat([vectors, counts.unsqueeze(-1)], dim=-1)  # (batch, length, dimension + 1)
        return functional.pad(weighted, (0, 0, 0, width - weighted.shape[1]))

    def pairs(self, queries: Tokens, passages: Tokens, template: Template) -> InteractingPairs:
        """Make pairs of texts that can be scored."""
        return InteractingPairs(queries, passages, template, self.settings, self._fill)

    def texts(self, tokens: Tokens, template: Template, kind: int) -> InteractingTexts:
        """Make texts of a kind (`QUERY` or `PASSAGE`) that can be encoded."""
        return _texts(tokens, template, self.settings, kind, self._fill)

    def parts(self) -> tuple[Any, dict[str, Tensor]]:
        """Split into the transformer and the weights of the layers after it."""
        return self.transformer, self.head.state_dict()


class TokenVectors(NamedTuple):
    """Vectors of the tokens that count, text by text, in single precision.

    `vectors` is (tokens, dimension), `weights` (tokens,); `counts` (texts,) has the number of tokens of each text.
    """

    vectors: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    counts: Rows


@dataclass(frozen=True)
class InteractingTexts(FramedTexts):
    """Texts of one kind, padded to their maximum length with the token `fill` unless it is -1."""

    fill: int = -1

    def vectors(self, model: nn.Module, rows: Rows, device: torch.device) -> TokenVectors:
        """Encode rows in sub-batches of similar length."""
        with torch.inference_mode():
            padded = forward_by_length(model, self.sequences(rows), device)  # (rows, width, dimension + 1)
            counting = padded[..., -1] != 0  # (rows, width)
            kept = padded[counting].float().cpu().numpy()  # (tokens, dimension + 1)
        return TokenVectors(kept[:, :-1], kept[:, -1], counting.sum(1).cpu().numpy())

    def frame(self, row: int) -> Frame:
        """Frame and pad the text of a row."""
        ids, segments = super().frame(row)
        missing = self.max_length - len(ids) if self.fill >= 0 else 0
        return np.pad(ids, (0, missing), constant_values=self.fill), np.pad(segments, (0, missing), mode="edge")

    def lengths(self, rows: Rows) -> Lengths:
        """Count the tokens of framed texts."""
        return np.full(len(rows), self.max_length) if self.fill >= 0 else super().lengths(rows)


def _texts(tokens: Tokens, template: Template, settings: PairSettings, kind: int, fill: int) -> InteractingTexts:
    if kind == QUERY:
        return InteractingTexts(tokens, template, settings.query_length, QUERY, fill)
    return InteractingTexts(tokens, template, settings.max_length, PASSAGE)


@dataclass(frozen=True)
class InteractingPairs(Pairs):
    """Pairs of queries and passages; each distinct text is encoded once."""

    fill: int = -1
    shared = True

    def scores(self, forward: Callable[[Sequences], Tensor], queries: Rows, passages: Rows) -> Tensor:
        """Encode texts with `forward` and score pairs of their rows; returns (pairs,)."""
        (first, query_of), (second, passage_of) = (np.unique(rows, return_inverse=True) for rows in (queries, passages))
        query_vectors = forward(self._of(QUERY).sequences(first))
        passage_vectors = forward(self._of(PASSAGE).sequences(second))
        places = (
            torch.split(torch.from_numpy(of).to(query_vectors.device), PAIRS_AT_ONCE) for of in (query_of, passage_of)
        )
        parts = [
            max_similarity(query_vectors[query], passage_vectors[passage], self.settings.similarity)
            for query, passage in zip(*places, strict=True)
        ]
        return torch.cat(parts)

    def texts(self, queries: Rows, passages: Rows) -> int:
        """Count the distinct texts, each of which goes through the model."""
        return len(np.unique(queries)) + len(np.unique(passages))

    def lengths(self, queries: Rows, passages: Rows) -> Lengths:
        """Count, for each pair, the tokens of its texts that no earlier pair has."""
        total = np.zeros(len(queries), dtype=np.int64)
        for kind, rows in ((QUERY, queries), (PASSAGE, passages)):
            new = np.unique(rows, return_index=True)[1]
            total[new] += self._of(kind).lengths(rows[new])
        return total

    def _of(self, kind: int) -> InteractingTexts:
        tokens = self.queries if kind == QUERY else self.passages
        return _texts(tokens, self.template, self.settings, kind, self.fill)


def max_similarity(queries: Tensor, passages: Tensor, similarity: str) -> Tensor:
    """Sum over query tokens: the token's weight times its greatest similarity to a passage token.

    :param queries: (pairs, m, e + 1), vectors followed by a weight.
    :param passages: (pairs, n, e + 1), vectors followed by 0 for tokens that do not count.
    :param similarity: cosine (of vectors of length 1), dot, or l2 for the negative squared distance.
    :returns: (pairs,).
    """
    best = token_similarities(queries, passages, similarity).amax(-1)  # (pairs, m)
    return (queries[..., -1] * best).sum(-1)


def token_similarities(queries: Tensor, passages: Tensor, similarity: str) -> Tensor:
    """Compare all tokens of queries (..., m, e + 1) with those of passages (..., n, e + 1), as in `max_similarity`.

    :returns: (..., m, n), `LOWEST` for passage tokens that do not count.
    """
    query, passage, counts = queries[..., :-1], passages[..., :-1], passages[..., -1]
    similarities = query @ passage.mT
    if similarity == "l2":
        lengths = query.square().sum(-1).unsqueeze(-1), passage.square().sum(-1).unsqueeze(-2)
        similarities = 2 * similarities - lengths[0] - lengths[1]
    return similarities.masked_fill(counts.unsqueeze(-2) == 0, LOWEST[similarity])


def new_late_interaction(base_model: str | Path, settings: PairSettings, seed: int) -> LateInteraction:
    """Put new layers, drawn from `seed`, on a base model."""
    transformer = load_transformer(base_model)
    _check_lengths("", settings, load_template(base_model, count_tokens(transformer)), transformer)
    torch.manual_seed(seed)
    return LateInteraction(transformer, settings, *find_special_tokens(base_model, settings))


def load_late_interaction(folder: str | Path) -> tuple[LateInteraction, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    transformer = load_transformer(folder, trained=True)
    template = load_template(folder, count_tokens(transformer))
    _check_lengths(f"{Path(folder) / PairSettings.FILE}: ", settings, template, transformer)
    model = LateInteraction(transformer, settings, *find_special_tokens(folder, settings))
    load_tensors(folder, HEAD, model.head, PairSettings)
    return model.eval(), template


def load_token_encoder(folder: str | Path) -> tuple[LateInteraction, Template]:
    """Load a model folder that encodes queries and passages separately.

    :raises InputError: for a re-ranker of another kind.
    """
    kind = read_settings(folder, PairSettings).kind
    if kind != "late_interaction":
        path = Path(folder) / PairSettings.FILE
        raise input_error(path, f"a re-ranker of the kind {kind}", "one of the kind late_interaction", "name another")
    return load_late_interaction(folder)


def origin_of(folder: str | Path, settings: PairSettings) -> Origin:
    """Describe the model that made token vectors."""
    return Origin(settings.dimension, settings.max_length, settings.similarity, model_fingerprint(folder))


def find_special_tokens(folder: str | Path, settings: PairSettings) -> tuple[int, set[int]]:
    """Look up the token that pads queries, -1 for none, and the punctuation to ignore."""
    tokenizer = load_tokenizer(folder)
    fix = "set it there, or set fill_queries to false"
    fill = special_id(folder, tokenizer, "mask_token", fix) if settings.fill_queries else -1
    punctuation: set[int] = set()
    for mark in string.punctuation if settings.skip_punctuation else "":
        encoding = tokenizer.encode(mark, add_special_tokens=False)
        # Not the unknown token; some tokenizers prepend a word-boundary marker.
        tokens = zip(encoding.ids, encoding.tokens, strict=True)
        punctuation |= {number for number, token in tokens if token in (mark, f"\u2581{mark}", f"\u0120{mark}")}
    return fill, punctuation


def _check_lengths(source: str, settings: PairSettings, template: Template, transformer: nn.Module) -> None:
    for name in ("query_length", "max_length"):
        check_length(source + name, getattr(settings, name), template.extra + 1, transformer)

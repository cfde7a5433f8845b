"""Late interaction: token vectors of query and passage, made apart, and the sum of each query token's best match.

ColBERT's (Khattab and Zaharia, SIGIR 2020): the score is the sum over the query's tokens i of ``max over the passage's
tokens j of sim(q_i, d_j)``, here perhaps weighted by a learned weight of token i. As in ColBERT's code, vectors have
length 1 for the cosine and for the negative squared distance. Queries and passages differ in their segment, as in CoRT
(section 3.2), where ColBERT puts a mark in front.

On disk a transformers folder with ``reranker.json`` and the layers after the transformer beside it.
"""

from __future__ import annotations

import string
from collections.abc import Callable
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
from cort.models.batching import Frame, Sequences, frame_text
from cort.models.loading import load_tensors, load_transformer, read_settings
from cort.models.settings import HEAD, PairSettings
from cort.models.tokenizer import Template, load_template, load_tokenizer, read_special_tokens
from cort.models.transformer import (
    accepted_inputs,
    check_length,
    count_tokens,
    forward_by_length,
    model_fingerprint,
    place,
    single,
)
from cort.system.errors import input_error

Rows = npt.NDArray[np.int64]
QUERY, PASSAGE = 1, 0
# Pairs whose tokens are compared at once: the vectors of each are copied.
PAIRS_AT_ONCE = 1_024
# Similarity of a query's token to a passage without tokens, by kind: below any other, however vectors are rounded and
# for inner products up to lengths of 65504. So such a passage ranks last.
LOWEST = {"cosine": -2.0, "dot": -(65504.0**2), "l2": -8.0}


class LateInteraction(nn.Module):
    """Map texts to a vector per token, each with its weight as one more number; 0 for what does not count."""

    def __init__(self, transformer: Any, settings: PairSettings, tokens: SpecialTokens) -> None:
        super().__init__()
        self.settings = settings
        if getattr(transformer, "pooler", None) is not None:
            transformer.pooler = None
        self.transformer = transformer
        hidden = transformer.config.hidden_size
        self.head = nn.ModuleDict({"vectors": nn.Linear(hidden, settings.dimension, bias=False)})
        if settings.term_weights:
            self.head["weights"] = nn.Linear(hidden, 1)
        self.inputs = accepted_inputs(transformer)
        self._fill = tokens.fill
        self.punctuation: Tensor
        self.register_buffer("punctuation", torch.tensor(tokens.punctuation, dtype=torch.long), persistent=False)

    def forward(self, batch: dict[str, Tensor]) -> Tensor:
        """Encode ``input_ids``, ``attention_mask``, ``token_type_ids`` of shape (batch, length), all of one segment.

        :returns: (batch, width, dimension + 1), as wide as the longest text of its kind may be.
        """
        ids, real = batch["input_ids"], batch["attention_mask"]
        is_query = bool(batch["token_type_ids"][0, 0] == QUERY)
        # As in ColBERT, what fills a query up is seen by no other token, and counts as a token.
        seen = {**batch, "attention_mask": real * (ids != self._fill)}
        states = single(self.transformer(**{name: seen[name] for name in self.inputs}).last_hidden_state)
        vectors = single(self.head["vectors"](states))  # (batch, length, dimension)
        if self.settings.similarity != "dot":
            vectors = functional.normalize(vectors, dim=-1)
        counts = real.to(vectors.dtype)  # (batch, length)
        if not is_query:
            counts = counts * ~torch.isin(ids, self.punctuation)
        elif "weights" in self.head:
            counts = counts * functional.softplus(single(self.head["weights"](states))).squeeze(-1)
        width = self.settings.query_length if is_query else self.settings.max_length
        together = torch.cat([vectors, counts.unsqueeze(-1)], dim=-1)  # (batch, length, dimension + 1)
        return functional.pad(together, (0, 0, 0, width - together.shape[1]))

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device to be used, the transformer in `precision`, what follows in fp32."""
        place(self, self.transformer, device, precision)

    def pairs(self, queries: Tokens, passages: Tokens, template: Template) -> InteractingPairs:
        """Pairs of texts to be scored."""
        return InteractingPairs(queries, passages, template, self.settings, self._fill)

    def texts(self, tokens: Tokens, template: Template, kind: int) -> InteractingTexts:
        """Texts of a kind (`QUERY` or `PASSAGE`) to be encoded."""
        return InteractingTexts(tokens, template, self.settings, kind, self._fill)

    def parts(self) -> tuple[Any, dict[str, Tensor]]:
        """Take apart: the transformer, and the weights of what follows it."""
        return self.transformer, self.head.state_dict()


@dataclass(frozen=True)
class SpecialTokens:
    """Token ids: what fills queries up (-1 for nothing), and what of passages is left out."""

    fill: int = -1
    punctuation: tuple[int, ...] = ()


class TokenVectors(NamedTuple):
    """Vectors of the tokens of some texts that count, one text after the other, in single precision.

    `vectors` is (tokens, dimension), `weights` (tokens,), `counts` (texts,) the number of tokens of each.
    """

    vectors: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    counts: Rows


@dataclass(frozen=True)
class InteractingTexts:
    """Token ids of texts of one kind, and how they are framed."""

    tokens: Tokens
    template: Template
    settings: PairSettings
    kind: int
    fill: int = -1

    def vectors(self, model: nn.Module, rows: Rows, device: torch.device) -> TokenVectors:
        """Encode the texts of some rows, those of similar length together."""
        with torch.inference_mode():
            together = forward_by_length(model, self.sequences(rows), device)  # (rows, width, dimension + 1)
            counting = together[..., -1] != 0  # (rows, width)
            kept = together[counting].float().cpu().numpy()  # (tokens, dimension + 1)
        return TokenVectors(kept[:, :-1], kept[:, -1], counting.sum(1).cpu().numpy())

    def sequences(self, rows: Rows) -> Sequences:
        """Frame the texts of some rows."""

        def frame(row: int) -> Frame:
            if self.kind == PASSAGE:
                return frame_text(self.tokens[rows[row]], self.template, self.settings.max_length, PASSAGE)
            ids, segments = frame_text(self.tokens[rows[row]], self.template, self.settings.query_length, QUERY)
            missing = self.settings.query_length - len(ids) if self.fill >= 0 else 0
            return np.pad(ids, (0, missing), constant_values=self.fill), np.pad(segments, (0, missing), mode="edge")

        return Sequences(self.lengths(rows), frame, self.template, str(self.tokens.path))

    def lengths(self, rows: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens of framed texts."""
        most = self.settings.max_length if self.kind == PASSAGE else self.settings.query_length
        if self.kind == QUERY and self.fill >= 0:
            return np.full(len(rows), most)
        return np.minimum(self.tokens.lengths[rows] + self.template.extra, most)


@dataclass(frozen=True)
class InteractingPairs:
    """Token ids of queries and passages, each different text of which is encoded once."""

    queries: Tokens
    passages: Tokens
    template: Template
    settings: PairSettings
    fill: int = -1
    #: whether pairs that are scored together share work
    shared = True

    def score(
        self, model: nn.Module, queries: Rows, passages: Rows, device: torch.device, token_budget: int | None = None
    ) -> Tensor:
        """Score pair i of query row ``queries[i]`` and passage row ``passages[i]``; returns (pairs,)."""

        def forward(sequences: Sequences) -> Tensor:
            return forward_by_length(model, sequences, device, token_budget)

        return self.scores(forward, queries, passages)

    def scores(self, forward: Callable[[Sequences], Tensor], queries: Rows, passages: Rows) -> Tensor:
        """Encode texts by `forward` and score pairs of their rows; returns (pairs,)."""
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
        """Count the texts that go through the model for some pairs: each different one."""
        return len(np.unique(queries)) + len(np.unique(passages))

    def lengths(self, queries: Rows, passages: Rows) -> npt.NDArray[np.integer]:
        """Count the tokens that each pair adds to those before it."""
        total = np.zeros(len(queries), dtype=np.int64)
        for kind, rows in ((QUERY, queries), (PASSAGE, passages)):
            new = np.unique(rows, return_index=True)[1]
            total[new] += self._of(kind).lengths(rows[new])
        return total

    def _of(self, kind: int) -> InteractingTexts:
        tokens = self.queries if kind == QUERY else self.passages
        return InteractingTexts(tokens, self.template, self.settings, kind, self.fill)


def max_similarity(queries: Tensor, passages: Tensor, similarity: str) -> Tensor:
    """Sum, over the tokens of each query, its weight times the greatest similarity to a token of its passage.

    :param queries: (pairs, m, e + 1), the last number a weight; `passages` (pairs, n, e + 1), that number 0 for tokens
        that do not count.
    :param similarity: cosine, of vectors of length 1; dot; or l2 for the negative squared distance.
    :returns: (pairs,).
    """
    best = token_similarities(queries, passages, similarity).amax(-1)  # (pairs, m)
    return (queries[..., -1] * best).sum(-1)


def token_similarities(queries: Tensor, passages: Tensor, similarity: str) -> Tensor:
    """Compare all tokens of queries (..., m, e + 1) and passages (..., n, e + 1), as `max_similarity` has them.

    :returns: (..., m, n), `LOWEST` for tokens of passages that do not count.
    """
    query, (passage, counts) = queries[..., :-1], (passages[..., :-1], passages[..., -1])
    found = query @ passage.mT
    if similarity == "l2":
        found = 2 * found - query.square().sum(-1).unsqueeze(-1) - passage.square().sum(-1).unsqueeze(-2)
    return found.masked_fill(counts.unsqueeze(-2) == 0, LOWEST[similarity])


def new_late_interaction(base_model: str | Path, settings: PairSettings, seed: int) -> LateInteraction:
    """Put fresh layers, drawn from `seed`, on a base model folder."""
    transformer = load_transformer(base_model)
    _check_lengths("", settings, load_template(base_model, count_tokens(transformer)), transformer)
    torch.manual_seed(seed)
    return LateInteraction(transformer, settings, find_special_tokens(base_model, settings))


def load_late_interaction(folder: str | Path) -> tuple[LateInteraction, Template]:
    """Load a model folder in evaluation mode, with its tokenizer's template."""
    settings = read_settings(folder, PairSettings)
    transformer = load_transformer(folder, trained=True)
    template = load_template(folder, count_tokens(transformer))
    _check_lengths(f"{Path(folder) / PairSettings.FILE}: ", settings, template, transformer)
    model = LateInteraction(transformer, settings, find_special_tokens(folder, settings))
    load_tensors(folder, HEAD, model.head, PairSettings)
    return model.eval(), template


def load_token_encoder(folder: str | Path) -> tuple[LateInteraction, Template]:
    """Load a model folder to encode texts apart.

    :raises InputError: a re-ranker of another kind.
    """
    kind = read_settings(folder, PairSettings).kind
    if kind != "late_interaction":
        expected = "one of the kind late_interaction"
        raise input_error(Path(folder) / PairSettings.FILE, f"a re-ranker of the kind {kind}", expected, "name another")
    return load_late_interaction(folder)


def origin_of(folder: str | Path, settings: PairSettings) -> Origin:
    """Say what a model's token vectors are made with."""
    return Origin(settings.dimension, settings.max_length, settings.similarity, model_fingerprint(folder))


def find_special_tokens(folder: str | Path, settings: PairSettings) -> SpecialTokens:
    """Look up the tokens that the settings speak of."""
    tokenizer = load_tokenizer(folder)
    fill = -1
    if settings.fill_queries:
        token = read_special_tokens(folder).get("mask_token", "[MASK]")
        number = tokenizer.token_to_id(token) if token else None
        if number is None:
            expected = "the mask_token of a tokenizer, which fills queries up"
            raise input_error(folder, f"no token {token}", expected, "set fill_queries to false")
        fill = number
    punctuation = set()
    for mark in string.punctuation if settings.skip_punctuation else "":
        found = tokenizer.encode(mark, add_special_tokens=False)
        # Not the token for what is unknown; some tokenizers put the mark of a word's beginning in front.
        tokens = zip(found.ids, found.tokens, strict=True)
        punctuation |= {number for number, token in tokens if token in (mark, f"\u2581{mark}", f"\u0120{mark}")}
    return SpecialTokens(fill, tuple(sorted(punctuation)))


def _check_lengths(source: str, settings: PairSettings, template: Template, transformer: nn.Module) -> None:
    for name in ("query_length", "max_length"):
        check_length(source + name, getattr(settings, name), template.extra + 1, transformer)

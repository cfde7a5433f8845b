"""Late interaction: query and passage are encoded separately, and each query token is matched with a passage token.

As in ColBERT (Khattab & Zaharia, SIGIR 2020), the score is the sum over query tokens i of ``max_j sim(q_i, d_j)`` over
passage tokens j, optionally weighted by a learned weight of token i. As in ColBERT's code, vectors are normalized to
length 1 for cosine. Segment ids tell queries from passages, as in CoRT (section 3.2); ColBERT prepends a marker token
instead.

On disk: a folder that ``MultiVectorEncoder(folder)`` of sentence-transformers loads, too, unless it has term weights.
"""

from __future__ import annotations

import json
import string
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor, nn
from torch.nn import functional

from cort.formats.shards import Origin, Tokens
from cort.models.batching import FramedTexts, Lengths, Rows, Sequences, constant, widths_of
from cort.models.building import TOKENS, dense, routed
from cort.models.cross_encoder import Pairs
from cort.models.layout import model_fingerprint
from cort.models.modules import KINDS, MODULE_CLASSES, WEIGHTS, TextModel, route
from cort.models.settings import PairSettings
from cort.models.tokenizer import load_tokenizer, special_id
from cort.models.transformer import forward_apart, forward_by_length, single

# Pairs whose tokens are compared at once; the vectors of each pair are copied.
COMPARED_AT_ONCE = 1_024
# Numbers in the padded vectors of queries, and of passages, that are held while their pairs are scored.
NUMBERS_AT_ONCE = 1 << 26
# Similarity of a query token to a passage without tokens, which thus ranks last: lower than any other, however vectors
# are rounded, and for inner products of vectors up to length 65504.
LOWEST = {"cosine": -2.0, "dot": -(65504.0**2), "l2": -8.0}


class Expansion(NamedTuple):
    """How queries are padded with a token: up to a length, longer ones truncated or not, attended to or not."""

    token: int
    length: int
    truncates: bool
    attended: bool


class WeightedTokens(nn.Module):
    """A module of sentence-transformers: token vectors, those of queries multiplied by learned weights."""

    forward_kwargs = frozenset({"task"})

    def __init__(self, width: int, size: int, unit_length: bool) -> None:
        super().__init__()
        self.vectors = nn.Linear(width, size, bias=False)
        self.weights = nn.Linear(width, 1)
        self.settings = {"width": width, "size": size, "unit_length": unit_length}

    def forward(self, features: dict[str, Any], task: str | None = None) -> dict[str, Any]:
        """Replace ``token_embeddings`` (batch, length, width), and add them without weights, and the weights."""
        states = features["token_embeddings"]
        vectors = single(self.vectors(states))  # (batch, length, size)
        if self.settings["unit_length"]:
            vectors = functional.normalize(vectors, dim=-1)
        if task != "query":
            return {**features, "token_embeddings": vectors}
        weights = functional.softplus(single(self.weights(states)))  # (batch, length, 1)
        more = {"token_vectors": vectors, "token_weights": weights.squeeze(-1)}
        return {**features, "token_embeddings": vectors * weights, **more}

    def get_embedding_dimension(self) -> int:
        """Return the size of the vectors."""
        return int(self.settings["size"])

    def save(self, folder: str, *_: Any, **__: Any) -> None:
        """Write settings and weights."""
        (Path(folder) / "config.json").write_text(json.dumps(self.settings) + "\n", encoding="utf-8")
        save_model(self, str(Path(folder) / WEIGHTS))

    @classmethod
    def load(cls, folder: str, subfolder: str = "", **_: Any) -> WeightedTokens:
        """Read what `save` wrote."""
        path = Path(folder) / subfolder
        module = cls(**json.loads((path / "config.json").read_text(encoding="utf-8")))
        load_model(module, path / WEIGHTS)
        return module


MODULE_CLASSES["cort.models.late_interaction.WeightedTokens"] = WeightedTokens


class LateInteraction(TextModel):
    """Map texts to a vector per token, followed by the token's weight, which is 0 for tokens that do not count."""

    kind, names = "late_interaction", ("query_length", "max_length")

    def __init__(self, model: Any, similarity: str | None = None) -> None:
        super().__init__(model)
        # In model folders, only that of vectors of length 1 is told from that of others.
        unit = [getattr(one, "settings", {}).get("unit_length", type(one).__name__ == "Normalize") for one in model]
        self.similarity = similarity or ("cosine" if any(unit) else "dot")
        self.dimension: int = model.get_embedding_dimension()
        self.expansion = expansion_of(model)
        length = self.framings["query"].length
        if self.expansion:
            length = self.expansion.length if self.expansion.truncates else max(length, self.expansion.length)
            self.framings["query"] = self.framings["query"]._replace(length=length)

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Encode framed texts of one kind, (batch, length); returns (batch, width, dimension + 1).

        The width is the maximum length of a query or passage.
        """
        kind = KINDS[batch["task"]]
        if self.expansion and kind == "query":
            segments = batch["token_type_ids"]  # (batch, length)
            added = segments < 0
            # As in ColBERT, no token attends to the tokens that pad a query, but they take part in matching.
            attended = batch["attention_mask"] * (1 if self.expansion.attended else ~added)
            # Only a mask can hide tokens.
            batch = {**batch, "token_type_ids": segments.clamp(min=0), "attention_mask": attended, "packing": None}
            batch["query_expansion_positions"] = added
        features = self.run(batch)
        vectors = single(features.get("token_vectors", features["token_embeddings"]))  # (batch, length, dimension)
        counts = features["attention_mask"].to(vectors.dtype)  # (batch, length)
        weights = features.get("token_weights", 1) * counts  # (batch, length)
        weighted = torch.cat([vectors, weights.unsqueeze(-1)], dim=-1)  # (batch, length, dimension + 1)
        return functional.pad(weighted, (0, 0, 0, self.framings[kind].length - weighted.shape[1]))

    def pairs(self, queries: Tokens, passages: Tokens) -> InteractingPairs:
        """Make pairs of texts that can be scored."""
        return InteractingPairs(queries, passages, self)

    def texts(self, tokens: Tokens, kind: str) -> InteractingTexts:
        """Make texts of a kind that can be encoded."""
        template, length = self.framings[kind]
        return InteractingTexts(tokens, template, length, kind, self.expansion if kind == "query" else None)


load_late_interaction = LateInteraction.load


def expansion_of(model: Any) -> Expansion | None:
    """Read how a model pads queries."""
    module = route(model, "query")[0]
    if not (settings := getattr(module, "query_expansion", None)):
        return None
    tokenizer = module.tokenizer
    named = settings["token"] and tokenizer.convert_tokens_to_ids(settings["token"])
    token = next(number for number in (named, tokenizer.mask_token_id, tokenizer.eos_token_id) if number is not None)
    return Expansion(token, settings["length"], settings["strategy"] == "fixed", settings["attend"])


class TokenVectors(NamedTuple):
    """Vectors of the tokens that count, text by text, in single precision.

    `vectors` is (tokens, dimension), `weights` (tokens,); `counts` (texts,) has the number of tokens of each text.
    """

    vectors: npt.NDArray[np.float32]
    weights: npt.NDArray[np.float32]
    counts: Rows


@dataclass(frozen=True)
class InteractingTexts(FramedTexts):
    """Texts of one kind, padded as the model's `expansion` says."""

    expansion: Expansion | None = None

    def vectors(self, model: nn.Module, rows: Rows, device: torch.device) -> TokenVectors:
        """Encode rows in sub-batches of similar length."""
        with torch.inference_mode():
            padded = forward_by_length(model, self.sequences(rows), device)  # (rows, width, dimension + 1)
            counting = padded[..., -1] != 0  # (rows, width)
            kept = padded[counting].float().cpu().numpy()  # (tokens, dimension + 1)
        return TokenVectors(kept[:, :-1], kept[:, -1], counting.sum(1).cpu().numpy())

    def sequences(self, rows: Rows) -> Sequences:
        """Frame and pad the texts of some rows; tokens that pad them have the segment -1."""
        framed = super().sequences(rows)
        if self.expansion is None:
            return framed
        missing = np.maximum(self.expansion.length - framed.lengths, 0)
        return replace(framed, parts=(*framed.parts, constant((self.expansion.token,), missing, -1)))


@dataclass(frozen=True)
class InteractingPairs(Pairs):
    """Pairs of queries and passages; each distinct text is encoded once."""

    model: LateInteraction
    shared = True

    def scores(self, forward: Callable[[Sequences], Tensor], queries: Rows, passages: Rows) -> Tensor:
        """Encode texts with `forward` and score pairs of their rows; returns (pairs,)."""
        (first, query_of), (second, passage_of) = (np.unique(rows, return_inverse=True) for rows in (queries, passages))
        query_vectors = forward(self._of("query").sequences(first))
        passage_vectors = forward(self._of("passage").sequences(second))
        return self._compare(query_vectors, passage_vectors, query_of, passage_of)

    def _compare(self, queries: Tensor, passages: Tensor, query_of: Rows, passage_of: Rows) -> Tensor:
        """Score pairs of rows of vectors; returns (pairs,)."""
        places = (
            torch.split(torch.from_numpy(of).to(queries.device), COMPARED_AT_ONCE) for of in (query_of, passage_of)
        )
        parts = [
            max_similarity(queries[query], passages[passage], self.model.similarity)
            for query, passage in zip(*places, strict=True)
        ]
        return torch.cat(parts)

    def order(self, queries: Rows, passages: Rows) -> Rows:
        """Order pairs by blocks of queries whose vectors fit into memory, and there by passage."""
        return np.lexsort((queries, passages, queries // self._at_once("query")))

    def scorer(self, model: nn.Module, device: torch.device) -> Callable[[Rows, Rows], Tensor]:
        """Make a function that scores consecutive pairs in the `order`, and encodes a text of each block once."""
        at_once = self._at_once("query")
        held: dict[int, Tensor] = {}  # row of a query in the block -> its vectors

        def score(queries: Rows, passages: Rows) -> Tensor:
            parts = []
            for some in self._runs(queries, passages):
                needed, query_of = np.unique(queries[some], return_inverse=True)
                distinct, passage_of = np.unique(passages[some], return_inverse=True)
                if held and next(iter(held)) // at_once != needed[0] // at_once:
                    held.clear()
                if new := [row for row in needed.tolist() if row not in held]:
                    held.update(zip(new, self._encode(model, "query", np.array(new), device), strict=True))
                vectors = torch.stack([held[row] for row in needed.tolist()])
                others = self._encode(model, "passage", distinct, device)
                parts.append(self._compare(vectors, others, query_of, passage_of))
            return torch.cat(parts)

        return score

    def _runs(self, queries: Rows, passages: Rows) -> list[slice]:
        """Divide ordered pairs into runs of one block of queries, and of passages whose vectors fit into memory."""
        blocks, at_once = queries // self._at_once("query"), self._at_once("passage")
        new = np.concatenate([[True], (np.diff(blocks) != 0) | (np.diff(passages) != 0)])
        starts = np.flatnonzero(new)  # of the pairs of each passage in each block
        of_block = np.searchsorted(blocks[starts], blocks[starts])
        first = (np.arange(len(starts)) - of_block) % at_once == 0
        ends = [*starts[first].tolist(), len(queries)]
        return [slice(start, end) for start, end in pairwise(ends)]

    def _at_once(self, kind: str) -> int:
        """Count the texts of a kind whose vectors are held at once."""
        return max(NUMBERS_AT_ONCE // (self.model.framings[kind].length * (self.model.dimension + 1)), 1)

    def _encode(self, model: nn.Module, kind: str, rows: Rows, device: torch.device) -> Tensor:
        """Encode texts, each as it would be among any others; returns (rows, width, dimension + 1)."""
        sequences = self._of(kind).sequences(rows)
        keys = [widths_of(sequences.lengths, self.model.framings[kind].length)]
        return forward_apart(model, sequences, keys, device)

    def passes(self, queries: Rows, passages: Rows) -> list[Lengths]:
        """Return the lengths of the distinct queries, and of the distinct passages."""
        return [self._of(kind).lengths(np.unique(rows)) for kind, rows in (("query", queries), ("passage", passages))]

    def lengths(self, queries: Rows, passages: Rows) -> Lengths:
        """Count, for each pair, the tokens of its texts that no earlier pair has."""
        total = np.zeros(len(queries), dtype=np.int64)
        for kind, rows in (("query", queries), ("passage", passages)):
            new = np.unique(rows, return_index=True)[1]
            total[new] += self._of(kind).lengths(rows[new])
        return total

    def _of(self, kind: str) -> InteractingTexts:
        return self.model.texts(self.queries if kind == "query" else self.passages, kind)


def max_similarity(queries: Tensor, passages: Tensor, similarity: str) -> Tensor:
    """Sum over query tokens: the token's weight times its greatest similarity to a passage token.

    :param queries: (pairs, m, e + 1), vectors followed by a weight.
    :param passages: (pairs, n, e + 1), vectors followed by 0 for tokens that do not count.
    :param similarity: cosine or dot, or l2, the negative squared distance; vectors have length 1 except for dot.
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
        similarities = 2 * similarities - 2
    return similarities.masked_fill(counts.unsqueeze(-2) == 0, LOWEST[similarity])


def new_late_interaction(
    base_model: str | Path, settings: PairSettings, seed: int, cleaning: str = "raw"
) -> LateInteraction:
    """Put new layers, drawn from `seed`, on a base model."""
    router, first = routed(base_model, (1, 0), (settings.query_length, settings.max_length), cleaning, seed)
    from sentence_transformers import MultiVectorEncoder
    from sentence_transformers.base.modules import Normalize
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask

    width, unit = router.sub_modules["document"][0].get_embedding_dimension(), settings.similarity != "dot"
    if settings.term_weights:
        torch.manual_seed(seed)
        layers: list[Any] = [WeightedTokens(width, settings.dimension, unit)]
    else:
        layers = [dense(width, settings.dimension, seed, False, nn.Identity(), TOKENS)]
        layers += [Normalize(module_input_name=TOKENS)] if unit else []
    if settings.fill_queries:
        special_id(
            Path(base_model), load_tokenizer(base_model), "mask_token", "set it there, or set fill_queries to false"
        )
        first.query_expansion = {"strategy": "fixed", "length": settings.query_length}
    punctuation = find_punctuation(base_model) if settings.skip_punctuation else []
    modules = [router, *layers, MultiVectorMask(skiplist_words=punctuation)]
    model = LateInteraction(MultiVectorEncoder(modules=modules, device="cpu"), settings.similarity)
    model.check_lengths("", base_model)
    return model


def origin_of(folder: str | Path, model: LateInteraction) -> Origin:
    """Describe the model that made token vectors."""
    return Origin(model.dimension, model.framings["passage"].length, model.similarity, model_fingerprint(folder))


def find_punctuation(folder: str | Path) -> list[str]:
    """List the tokens that are punctuation, as the vocabulary spells them."""
    tokenizer = load_tokenizer(folder)
    found: list[str] = []
    for mark in string.punctuation:
        # Not the unknown token; some tokenizers prepend a word-boundary marker.
        tokens = tokenizer.encode(mark, add_special_tokens=False).tokens
        found += [token for token in tokens if token in (mark, f"\u2581{mark}", f"\u0120{mark}")]
    return found

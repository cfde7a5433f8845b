"""Re-rankers that are encoder-decoders: the first token that they would generate says how relevant a passage is.

monoT5 (Nogueira et al., 2020, section 3) compares "true" with "false"; the score here is the log-odds, which ranks as
the probability does, without ties near 0 and 1. RankT5 (Zhuang et al., 2023, section 4.2) takes the logit of one token.

On disk: a transformers folder of a T5, plus ``reranker.json``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from cort.formats.artifacts import write_artifact
from cort.formats.shards import Tokens
from cort.models.cross_encoder import Pairs, check_lengths, longest_query
from cort.models.hub import open_tokenizer
from cort.models.loading import SEQ2SEQ, load_transformer, read_settings
from cort.models.pair_prompt import PASSAGE, QUERY, divide
from cort.models.precision import place
from cort.models.settings import PairSettings
from cort.models.tokenizer import template_of
from cort.models.transformer import in_single_precision
from cort.runtime.errors import input_error


class Formula(NamedTuple):
    """A prompt, the token that means relevant, and one that means irrelevant."""

    prompt: str
    relevant: str
    irrelevant: str | None = None


#: by kind of re-ranker
FORMULAS = {
    "monot5": Formula(f"Query: {QUERY} Document: {PASSAGE} Relevant:", "\u2581true", "\u2581false"),
    "rankt5": Formula(f"Query: {QUERY} Document: {PASSAGE}", "<extra_id_10>"),
}


class Seq2SeqReranker(nn.Module):
    """Map pairs to relevance scores."""

    def __init__(self, transformer: Any, tokenizer: Any, settings: PairSettings, source: str | Path) -> None:
        super().__init__()
        self.transformer, self.kind, self.max_length = transformer, settings.kind, settings.max_length
        formula, backend = FORMULAS[settings.kind], tokenizer.backend_tokenizer
        names = [name for name in (formula.relevant, formula.irrelevant) if name]
        self.answers = [backend.token_to_id(name) for name in names]
        if None in self.answers:
            found = f"no token {names[self.answers.index(None)]}"
            raise input_error(source, found, f"the vocabulary of a {settings.kind}", "name another model or kind")
        self._tokenizer, self.prompt = tokenizer, divide(source, formula.prompt, backend)
        self.template = self.prompt.frame(backend, template_of(source, backend, tokenizer.pad_token_id))
        self.query_length = settings.query_length or longest_query(self.template, self.max_length)
        self.settings = settings.model_copy(update={"query_length": self.query_length})
        in_single_precision(transformer.lm_head)

    @classmethod
    def load(cls, folder: str | Path, _: str = "fp32") -> Seq2SeqReranker:
        """Load a model folder in evaluation mode."""
        return open_seq2seq(folder, read_settings(folder))

    def forward(self, batch: dict[str, Any]) -> Tensor:
        """Score ``input_ids`` and ``attention_mask`` of shape (batch, length); returns (batch,)."""
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        first = inputs["input_ids"].new_full(
            (len(inputs["input_ids"]), 1), self.transformer.config.decoder_start_token_id
        )
        logits = self.transformer(**inputs, decoder_input_ids=first, use_cache=False).logits[:, 0, self.answers]
        scores: Tensor = logits[:, 0] - logits[:, 1] if len(self.answers) > 1 else logits[:, 0]
        return scores

    def place(self, device: torch.device, precision: str) -> None:
        """Move to a device for inference: all but the last layer in `precision`, which avoids ties."""
        head = self.transformer.lm_head
        head.weight = nn.Parameter(head.weight.detach().clone(), requires_grad=False)
        place(self, device, precision, [self.transformer.encoder, self.transformer.decoder])

    def pairs(self, queries: Tokens, passages: Tokens) -> Pairs:
        """Make pairs of texts that can be scored."""
        return Pairs(queries, passages, self)

    def save(self, folder: Path) -> None:
        """Write all files but the model card into a folder."""
        self.transformer.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)
        self.prompt.save(folder, self.template)
        write_artifact(folder / PairSettings.FILE, self.settings.model_dump())


def open_seq2seq(folder: str | Path, settings: PairSettings) -> Seq2SeqReranker:
    """Load a transformers folder as a re-ranker of the kind in `settings`, in evaluation mode.

    A `query_length` of 0 stands for the longest query that leaves room for a passage.
    """
    transformer: Any = load_transformer(folder, SEQ2SEQ, trained=True)
    model = Seq2SeqReranker(transformer, open_tokenizer(Path(folder)), settings, folder)
    check_lengths(f"{folder}: ", model)
    return model.eval()

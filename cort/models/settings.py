"""What makes a transformer an encoder, as a model folder and a command line say it; no torch."""

from __future__ import annotations

import argparse
from dataclasses import dataclass, fields
from typing import Literal

from cort.system import cli


@dataclass(frozen=True)
class EncoderSettings:
    """What makes a transformer a CoRT encoder; lengths count special tokens."""

    pooling: Literal["cls", "mean"]
    dimension: int
    query_length: int
    passage_length: int
    similarity: Literal["angular", "cosine", "inner_product"] = "angular"
    projection: bool = True
    query_segment: int = 1
    passage_segment: int = 0

    @property
    def unit_length(self) -> bool:
        """Whether vectors are stored with length 1: angle and cosine do not see their length."""
        return self.similarity != "inner_product"

    def segment(self, kind: str) -> int:
        """Segment id (section 3.2): CoRT tells the two kinds of text apart by their segment embedding alone."""
        return self.query_segment if kind == "query" else self.passage_segment

    def length(self, kind: str) -> int:
        """Tokens a text of `kind` ("query" or "passage") is cut to."""
        return self.query_length if kind == "query" else self.passage_length


def add_encoder_arguments(parser: argparse.ArgumentParser) -> None:
    """Add an option for each setting; the defaults are the paper's."""
    parser.add_argument("--pooling", choices=("cls", "mean"), default="cls")
    parser.add_argument("--dimension", type=int, default=768, help="e, the size of the vectors")
    parser.add_argument("--query-length", type=int, default=512, help="tokens, special ones included")
    parser.add_argument("--passage-length", type=int, default=512, help="tokens, special ones included")
    parser.add_argument("--similarity", choices=("angular", "cosine", "inner_product"), default="angular")
    parser.add_argument("--projection", type=cli.boolean, default=True, help="False: as the model's states")
    parser.add_argument("--query-segment", type=int, choices=(0, 1), default=1)
    parser.add_argument("--passage-segment", type=int, choices=(0, 1), default=0)


def encoder_settings(args: argparse.Namespace) -> EncoderSettings:
    """Collect the settings from parsed arguments."""
    return EncoderSettings(**{field.name: getattr(args, field.name) for field in fields(EncoderSettings)})

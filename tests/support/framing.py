"""Framed texts and pairs, one at a time: token ids and segment ids as arrays."""

import numpy as np

from cort.formats.shards import Tokens
from cort.models.batching import FramedTexts, Part, framed_pairs

FIRST = np.zeros(1, np.int64)


def frame_of(sequences, row=0):
    """Token ids and segments of one of the sequences, without padding."""
    batch = sequences.batch(np.array([row]))
    return tuple(batch[name].reshape(-1).numpy() for name in ("input_ids", "token_type_ids"))


def frame_text(tokens, template, max_length):
    return frame_of(FramedTexts(Tokens.of_texts([tokens]), template, max_length).sequences(FIRST))


def frame_pair(query, passage, template, query_length, max_length):
    sides = (Part(Tokens.of_texts([side]), FIRST, np.array([len(side)]), 0) for side in (query, passage))
    return frame_of(framed_pairs(*sides, template, query_length, max_length))

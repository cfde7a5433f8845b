"""What is done to texts before they are indexed or tokenized: nothing, fixed encoding, or the CoRT authors' filter.

Nearly all of MS MARCO's passages with characters beyond ASCII were decoded wrongly before they were published ("Ã©" for
"é"). Anserini indexes them as they are, ir_datasets fixes them, and the authors of CoRT leave out most such characters:
three results from one collection. So it is a setting, of BM25 and of each base model.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias, get_args

import pyarrow as pa
import pyarrow.compute as pc

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow

#: "raw": as published; "fixed": wrongly decoded characters fixed, nothing else; "cort": the authors' filter
Form: TypeAlias = Literal["raw", "fixed", "cort"]
FORMS: tuple[Form, ...] = get_args(Form)

# `PreProcessor` of the authors' code: every run of other characters becomes one blank. \d takes digits of any script.
OTHERS = r"[^a-zA-Z\d.,!?;/:]+"
_OTHERS = re.compile(OTHERS)


def convert(texts: pa.Array, form: str) -> pa.Array:
    """Bring texts into one of `FORMS`; with "cort" a text may become empty."""
    if form == "raw":
        return texts
    ascii_only = pc.string_is_ascii(texts)
    if form == "cort":
        # What Arrow's expressions take for a digit is ASCII, and so are these texts.
        texts = pc.if_else(ascii_only, pc.utf8_trim(pc.replace_substring_regex(texts, OTHERS, " "), " "), texts)
    import ftfy

    change = ftfy.fix_encoding if form == "fixed" else lambda text: _OTHERS.sub(" ", text).strip(" ")
    others = [change(text) for text in texts.filter(pc.invert(ascii_only)).to_pylist()]
    return pc.replace_with_mask(texts, pc.invert(ascii_only), pa.array(others, pa.string()))


def plain(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Write texts as they are compared with others: Unicode's NFKC, lower case, single blanks, no mark at the end."""
    lowered = pc.utf8_lower(pc.utf8_normalize(texts, "NFKC"))
    return pc.utf8_rtrim(pc.utf8_trim_whitespace(pc.replace_substring_regex(lowered, r"\s+", " ")), " .?!")

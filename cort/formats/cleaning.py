"""How texts are cleaned before they are indexed or tokenized: not at all, by fixing their encoding, or as in CoRT.

Nearly all MS MARCO passages with non-ASCII characters were decoded wrongly before publication ("Ã©" for "é"). Anserini
indexes them unchanged, ir_datasets fixes them, and the authors of CoRT drop most such characters, which gives three
different results for one collection. Cleaning is therefore a setting of BM25 and of each base model.
"""

import re
from typing import Literal, get_args

import pyarrow as pa
import pyarrow.compute as pc

import cort.formats.arrow  # noqa: F401 - first of all that uses pyarrow

#: "raw": as published; "fixed": only fix wrongly decoded characters; "cort": the authors' filter
Form = Literal["raw", "fixed", "cort"]
FORMS: tuple[Form, ...] = get_args(Form)

# `PreProcessor` of the authors' code: each run of other characters becomes one space. \d matches digits of any script.
OTHERS = r"[^a-zA-Z\d.,!?;/:]+"
_OTHERS = re.compile(OTHERS)


def convert(texts: pa.Array, form: str) -> pa.Array:
    """Convert texts to one of `FORMS`; "cort" may leave a text empty."""
    if form == "raw":
        return texts
    ascii_only = pc.string_is_ascii(texts)
    if form == "cort":
        # Arrow's \d matches only ASCII digits, which is enough for these texts.
        texts = pc.if_else(ascii_only, pc.utf8_trim(pc.replace_substring_regex(texts, OTHERS, " "), " "), texts)
    import ftfy

    change = ftfy.fix_encoding if form == "fixed" else lambda text: _OTHERS.sub(" ", text).strip(" ")
    others = [change(text) for text in texts.filter(pc.invert(ascii_only)).to_pylist()]
    return pc.replace_with_mask(texts, pc.invert(ascii_only), pa.array(others, "string"))


def plain(texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Normalize texts for comparison: Unicode NFKC, lower case, single spaces, no punctuation at the end."""
    lowered = pc.utf8_lower(pc.utf8_normalize(texts, "NFKC"))
    return pc.utf8_rtrim(pc.utf8_trim_whitespace(pc.replace_substring_regex(lowered, r"\s+", " ")), " .?!")

import unicodedata

import pytest

from cort.formats.visible import visible

HIDDEN = "\u00ad\u2060\ufeff\u200e\u200f\u202a\u202c\u2066\u2069\u061c\u180e\u034f\u2061\u2063"


@pytest.mark.parametrize("hidden", HIDDEN)
def test_what_cannot_be_seen_goes_and_parts_no_word(hidden):
    assert visible(f"{hidden}Reise{hidden}{hidden}kosten {hidden}") == "Reisekosten "


def test_accents_are_composed():
    text = "Über Café Ångström 한국 ắ"
    assert visible(unicodedata.normalize("NFD", text)) == visible(text) == text
    # Other characters that NFKC would change stay.
    assert visible("ﬁnd eﬀect ² Ⅷ") == "find effect ² Ⅷ"


def test_joiners_that_change_letters_stay_and_breaks_part_words_only_where_there_are_no_spaces():
    persian, emoji = "\u0645\u06cc\u200c\u062e\u0648", "\U0001f469\u200d\U0001f52c"
    assert visible(persian + emoji) == persian + emoji
    assert visible("super\u200bcali /usr/\u200blib") == "supercali /usr/lib"
    thai = "ภาษา\u200bไทย"
    assert visible(thai) == thai
    assert visible("plain") == "plain"

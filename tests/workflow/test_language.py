"""The language of a folder, by a library; which language a text is in is known."""

import pytest

from tests.support.common import json_lines, write_file
from workflow.language import DOCUMENTS, Spoken, language_of

pytest.importorskip("py3langid", reason="py3langid is not installed")

TEXTS = {
    "en": "The traveller is paid for the costs of a journey, if the journey was agreed before it began.",
    "de": "Dem Reisenden werden die Kosten der Reise erstattet, wenn die Reise vor ihrem Beginn genehmigt wurde.",
    "ja": "出張の費用は、出発前に承認されている場合に限り、出張者に支払われます。",
    "fr": "Les frais du voyage sont remboursés au voyageur si le voyage a été approuvé avant son début.",
    "no": "Den reisende får dekket kostnadene til reisen dersom reisen ble godkjent før den begynte, og ikke ellers.",
    "th": "ค่าใช้จ่ายในการเดินทางจะจ่ายให้แก่ผู้เดินทางหากการเดินทางได้รับการอนุมัติก่อนเริ่มเดินทาง",
    "cs": "Cestujícímu se hradí náklady na cestu, pokud byla cesta schválena před jejím začátkem.",
}


@pytest.mark.parametrize("code", TEXTS)
def test_the_most_frequent_language_is_told(tmp_path, code):
    for number in range(5):
        write_file(tmp_path / f"{number}.md", f"# {TEXTS[code]}\n\n{TEXTS[code]}\n" if number else TEXTS["en"])
    expected = 5 if code == "en" else 4
    assert language_of(tmp_path) == Spoken(code, expected, 5)


def test_rows_count_and_what_has_no_text_does_not(tmp_path):
    write_file(tmp_path / "rows.jsonl", json_lines([{"id": number, "text": TEXTS["de"]} for number in range(3)]))
    write_file(tmp_path / "short.txt", "Ja.")
    write_file(tmp_path / "other.bin", "x")
    assert language_of(tmp_path) == Spoken("de", 3, 3)
    (tmp_path / "none").mkdir()
    assert language_of(tmp_path / "none") == Spoken("", 0, 0)


def test_of_many_files_some_are_read(tmp_path):
    for number in range(4 * DOCUMENTS):
        write_file(tmp_path / f"{number:03d}.txt", TEXTS["fr"])
    found = language_of(tmp_path)
    assert found.code == "fr"
    assert found.number == found.of == DOCUMENTS

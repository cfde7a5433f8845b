"""Numbers, dates and times as Excel shows them; each answer was read off its rules (ECMA-376, 18.8.31)."""

from datetime import date, datetime, time, timedelta

import pytest

from cort.sources.cells import shown

WHEN = datetime(2026, 3, 5, 14, 5, 9)
CELLS = [
    # Texts, truth values and errors.
    *(("00123", "General", "00123"), ("1.0", "0.00", "1.0"), (3, "@", "3"), ("#N/A", "0", "#N/A")),
    *((True, "General", "TRUE"), (False, "0", "FALSE")),
    # Numbers without a format.
    *((7, "General", "7"), (2.0, "General", "2"), (-1.5, "General", "-1.5"), (-0.0, "General", "0")),
    *((123456789.123, "General", "123456789.123"), (0.1 + 0.2, "General", "0.3")),
    *((1e20, "General", "1" + 20 * "0"), (1e-7, "General", "0.0000001")),
    # Digits before and after the point, and thousands.
    *((123, "00000", "00123"), (123, '"ID-"00000', "ID-00123"), (42, '0" kg"', "42 kg"), (5, "[Red]0", "5")),
    *((1234567, "#,##0", "1,234,567"), (12, "#,##0", "12"), (1234567.891, "#,##0.00", "1,234,567.89")),
    *((1.005, "0.00", "1.01"), (0.5, "#.##", ".5"), (1.5, "0.##", "1.5"), (2, "0.0?", "2.0"), (0.5, "# ?/?", "0.5")),
    *((1500000, '0.0,,"M"', "1.5M"), (1500, "0,", "2"), (4155551234, "(000) 000-0000", "(415) 555-1234")),
    *((0.256, "0%", "26%"), (0.2567, "0.0%", "25.7%"), (12000, "0.00E+00", "1.20E+04")),
    *((1234.5, '#,##0.00 "€"', "1,234.50 €"), (1234.5, "[$€-407]#,##0.00", "€1,234.50")),
    # Formats of negative numbers, zero and texts.
    *((-5.5, "0.0", "-5.5"), (-1234, "#,##0_);(#,##0)", "(1,234)"), (0, '0;-0;"none"', "none"), (5, ";;;", "")),
    # Days.
    *((datetime(2026, 11, 28), "mm-dd-yy", "2026-11-28"), (date(2026, 11, 28), "dd.mm.yyyy", "28.11.2026")),
    *((datetime(2026, 3, 5), "General", "2026-03-05"), (WHEN, "yyyy\\-mm\\-dd", "2026-03-05")),
    *((WHEN, "d. mmmm yyyy", "5. March 2026"), (WHEN, "ddd d-mmm-yy", "Thu 5-Mar-26")),
    (WHEN, "[$-407]dddd, d. mmmm yyyy;@", "Thursday, 5. March 2026"),
    # Times.
    *((WHEN, "dd.mm.yyyy hh:mm:ss", "05.03.2026 14:05:09"), (WHEN, "h:mm AM/PM", "2:05 PM"), (WHEN, "mm:ss", "05:09")),
    *((time(9, 5), "h:mm", "9:05"), (time(0, 5), "h:mm AM/PM", "12:05 AM")),
    (timedelta(hours=30, minutes=5), "[h]:mm:ss", "30:05:00"),
]


@pytest.mark.parametrize(("value", "code", "text"), CELLS)
def test_cells_are_shown_as_in_a_sheet(value, code, text):
    assert shown(value, code) == text

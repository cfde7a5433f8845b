"""Cells of spreadsheets as a sheet shows them: numbers, dates and times in the cell's format (ECMA-376, 18.8.31)."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta
from decimal import ROUND_HALF_UP, Decimal
from functools import cache
from typing import NamedTuple

# Text in quotes, one character behind a backslash; a space as wide as a character, a filler; currency; other brackets.
_TOKEN = re.compile(
    r'"(?P<quoted>[^"]*)"?|\\(?P<escaped>.)|[_*].|\[\$(?P<currency>[^\]-]*)[^\]]*\]|\[(?P<elapsed>h+|m+|s+)\]|\[[^\]]*\]'
    r"|(?P<general>General)|(?P<date>AM/PM|A/P|y+|m+|d+|h+|s+(?:\.0+)?)|(?P<exponent>E[+-])|(?P<digit>[0#?])"
    r"|(?P<mark>[.,%/@])|(?P<other>.)",
    re.IGNORECASE | re.DOTALL,
)
# Formats of dates that each country shows in its own way.
_LOCAL = {"mm-dd-yy": "yyyy-mm-dd", "m/d/yy h:mm": "yyyy-mm-dd hh:mm"}
_EPOCH = datetime(1899, 12, 30)
# As many digits as a spreadsheet keeps.
_DIGITS = 15


class Token(NamedTuple):
    """A part of a format: its kind in `_TOKEN`, and its text."""

    kind: str
    text: str


def shown(value: object, code: str) -> str:
    """Return what a cell shows; `code` is its format. Text is shown as it is."""
    match value:
        case bool():
            return str(value).upper()
        case int() | float():
            return _number(value, code)
        case datetime() | date() | time() | timedelta():
            return _date(value, code)
    return str(value)


@cache
def _sections(code: str) -> list[list[Token]]:
    """Divide a format into those of positive and negative numbers and zero, each into its parts."""
    sections: list[list[Token]] = [[]]
    for match in _TOKEN.finditer(code):
        kind = str(match.lastgroup or "")
        if kind == "other" and match[0] == ";":
            sections.append([])
        elif kind in ("quoted", "escaped", "currency", "other"):
            sections[-1].append(Token("text", match[kind]))
        elif kind:
            sections[-1].append(Token(kind, match[kind]))
    return sections


def _general(value: float) -> str:
    """Write a number with the digits it has, without an exponent."""
    digits = f"{Decimal(f'{value or 0:.{_DIGITS}g}'):f}"
    return digits.rstrip("0").rstrip(".") if "." in digits else digits


def _number(value: float, code: str) -> str:
    sections = _sections(code)
    place = 1 if value < 0 and len(sections) > 1 else 2 if value == 0 and len(sections) > 2 else 0
    tokens = sections[place]
    kinds = {token.kind for token in tokens}
    text = "".join(token.text for token in tokens if token.kind == "text")
    if kinds <= {"text", ""}:
        return text
    if "digit" not in kinds or Token("mark", "/") in tokens or kinds & {"date", "elapsed", "general"}:
        return " ".join(filter(None, [_general(value), text.strip()]))
    sign = "-" if value < 0 and place == 0 else ""
    number = abs(Decimal(f"{value:.{_DIGITS}g}"))
    return sign + (_scientific if "exponent" in kinds else _plain)(number, tokens)


def _scientific(number: Decimal, tokens: list[Token]) -> str:
    kinds = [token.kind for token in tokens]
    point = tokens.index(Token("mark", ".")) if Token("mark", ".") in tokens else len(tokens)
    end = kinds.index("exponent")
    mantissa, _, exponent = f"{number:.{kinds[point:end].count('digit')}E}".partition("E")
    return f"{mantissa}E{exponent[0]}{exponent[1:].zfill(kinds[end:].count('digit'))}"


def _plain(number: Decimal, tokens: list[Token]) -> str:
    """Fill the places of a format with digits, from the point to both sides."""
    point = next((place for place, token in enumerate(tokens) if token == Token("mark", ".")), len(tokens))
    whole, fraction = tokens[:point], tokens[point + 1 :]
    last = max((place for place, token in enumerate(whole) if token.kind == "digit"), default=-1)
    commas = [place for place, token in enumerate(whole) if token == Token("mark", ",")]
    # Each comma behind the digits stands for three of them.
    thousands = sum(place > last for place in commas) + fraction.count(Token("mark", ","))
    number *= Decimal(100) ** tokens.count(Token("mark", "%")) / Decimal(1000) ** thousands
    places = sum(token.kind == "digit" for token in fraction)
    digits, _, decimals = f"{number.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP):f}".partition(".")
    is_grouped = any(place < last for place in commas)
    filled = _filled([token for token in whole if token != Token("mark", ",")], digits.lstrip("0"), is_grouped)
    return filled + "." * (places > 0) + _decimals(fraction, decimals)


def _filled(tokens: list[Token], digits: str, is_grouped: bool) -> str:
    left = sum(token.kind == "digit" for token in tokens)
    shown: list[str] = []
    count = 0
    for token in reversed(tokens):
        if token.kind != "digit":
            shown.append(_literal(token))
            continue
        left -= 1
        taken, digits = (digits, "") if left == 0 and digits else (digits[-1:], digits[:-1])
        for digit in reversed(taken or {"0": "0", "?": " "}.get(token.text, "")):
            shown.append("," * (is_grouped and count > 0 and count % 3 == 0))
            shown.append(digit)
            count += 1
    return "".join(reversed(shown))


def _decimals(tokens: list[Token], digits: str) -> str:
    shown = list[str]()
    for token in tokens:
        if token.kind != "digit":
            shown.append(_literal(token))
            continue
        shown += digits[:1] if token.text == "0" or digits.strip("0") else ""
        digits = digits[1:]
    return "".join(shown)


def _literal(token: Token) -> str:
    return token.text if token.kind == "text" or token.text == "%" else ""


def _date(value: date | time | timedelta, code: str) -> str:
    """Write a date or time in its format; without one, as ISO 8601 does."""
    tokens = _sections(_LOCAL.get(code, code))[0]
    if not any(token.kind in ("date", "elapsed") for token in tokens):
        return str(value).removesuffix(" 00:00:00")
    moment = _moment(value)
    # What has elapsed of a duration, or of the day.
    seconds = int((moment - (_EPOCH if isinstance(value, timedelta) else _moment(moment.date()))).total_seconds())
    is_half = any(token.text.upper() in ("AM/PM", "A/P") for token in tokens)
    texts = list[str]()
    for place, token in enumerate(tokens):
        if token.kind == "elapsed":
            unit = {"h": 3600, "m": 60, "s": 1}[token.text[0].lower()]
            texts.append(f"{seconds // unit:0{len(token.text)}d}")
        elif token.kind == "date":
            texts.append(_part(moment, token.text, _is_minute(tokens, place), is_half))
        elif token.kind == "text" or token.kind == "mark":
            texts.append(token.text.replace("@", ""))
    return "".join(texts)


def _moment(value: date | time | timedelta) -> datetime:
    if isinstance(value, timedelta):
        return _EPOCH + value
    if isinstance(value, time):
        return datetime.combine(_EPOCH, value)
    return value if isinstance(value, datetime) else datetime.combine(value, time())


def _is_minute(tokens: list[Token], place: int) -> bool:
    """Whether "m" is of minutes: behind hours or before seconds."""
    before, after = (
        [token.text[0].lower() for token in part if token.kind in ("date", "elapsed")]
        for part in (tokens[:place], tokens[place + 1 :])
    )
    return before[-1:] == ["h"] or after[:1] == ["s"]


def _part(moment: datetime, code: str, is_minute: bool, is_half: bool) -> str:
    code = code.lower()
    letter, (whole, point, decimals) = code[0], code.partition(".")
    length = len(whole)
    if letter == "a":
        return f"{moment:%p}" if "m" in code else f"{moment:%p}"[0]
    if letter == "y":
        return f"{moment:%y}" if length < 3 else f"{moment:%Y}"
    if length > 2 and (letter == "d" or (letter == "m" and not is_minute)):
        name = f"{moment:%B}" if letter == "m" else f"{moment:%A}"
        return {3: name[:3], 5: name[0]}.get(length, name)
    hour = (moment.hour - 1) % 12 + 1 if is_half else moment.hour
    minute = moment.minute if is_minute else moment.month
    number = {"d": moment.day, "m": minute, "h": hour, "s": moment.second}[letter]
    fraction = f"{moment.microsecond / 1e6:.{len(decimals)}f}"[1:] if point else ""
    return f"{number:0{length}d}{fraction}"

"""Model cards, taken apart."""

import yaml


def card_of(folder):
    """Header and text of a model's card."""
    _, header, text = (folder / "README.md").read_text("utf-8").split("---\n", 2)
    return yaml.safe_load(header), text


def cells(text):
    """Rows of all tables, cut at the bars that are not escaped."""
    rows = (line.replace("\\|", "\0") for line in text.splitlines() if line.startswith("| "))
    return [[cell.strip().replace("\0", "|") for cell in row.strip("|").split("|")] for row in rows]

"""The explorer: a folder with a page that shows two rankings of a query side by side, and its data."""

"""Tools for operators; no rule calls them."""

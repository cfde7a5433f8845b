"""Tools for operators; not used by rules."""

"""Folders that search engines load: passages, vectors, settings and queries in their own formats."""

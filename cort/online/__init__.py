"""Search for one query at once: everything a system needs stays open, and BM25 runs beside the dense ranker."""

"""From vectors and texts to rankings: exact search, graph indexes, BM25."""

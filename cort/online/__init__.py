"""Answer single queries quickly: what a system needs stays open, and BM25 runs in parallel with the dense retriever."""

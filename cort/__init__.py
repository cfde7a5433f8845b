"""CoRT: neural first-stage ranking that complements a term-based ranker, from raw files to tables.

One module per stage (``python -m cort.<stage> --help``), each usable without the workflow.
"""

__version__ = "0.2.0"

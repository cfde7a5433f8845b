"""A model as others can use it: the layout of sentence-transformers."""

"""Where documents, queries and judgements come from, besides the files that `cort.formats` reads."""

"""The kinds of systems, one class each: what a run is made from, how it is checked, described and searched."""

"""A class for each way to rank: what a run is made from, how it is checked, described and searched."""

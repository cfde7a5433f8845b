"""Measures of runs, and whether their differences are more than chance."""

"""Measures of runs, and the significance of their differences."""

"""Benchmarks: each prints a small table."""

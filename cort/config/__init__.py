"""The config of an experiment: its sections, how a file is read and checked, and what follows from it."""

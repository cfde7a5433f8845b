"""What an experiment can say: every key with its type, default, bounds and meaning. Imports nothing slow."""

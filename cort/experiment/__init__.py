"""An experiment: its config, checked and completed, and what the rules ask about it."""

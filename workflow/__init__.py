"""The workflow: rules, their inputs and settings, and planning."""

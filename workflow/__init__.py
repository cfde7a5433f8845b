"""The workflow: rules, the schema of experiments, and what the rules ask of an experiment."""

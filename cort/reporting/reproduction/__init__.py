"""Published numbers: read, compared with ours, and shown."""

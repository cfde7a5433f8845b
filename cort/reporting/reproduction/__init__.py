"""Published numbers beside ours: read, compared, and shown."""

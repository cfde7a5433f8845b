"""Public files: found in a folder or among earlier downloads, or fetched from their mirrors, and checked."""

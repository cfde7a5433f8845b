"""Taking in public files: from a folder, from this project's own downloads, or from their mirrors."""

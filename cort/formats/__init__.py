"""Every file format of the project, and nothing else: what is written here is read here, checked."""

"""The basis of every stage: command line, errors, files, locks, devices, memory, signals."""

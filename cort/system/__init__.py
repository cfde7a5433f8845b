"""The basis of every stage, whatever it computes: command line, errors, files, locks, devices, memory, signals."""

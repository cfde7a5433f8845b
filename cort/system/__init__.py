"""What every stage stands on, whatever it computes: command line, errors, files, locks, devices, signals."""

"""What `scripts.gpu_check` does: checks of every path on a GPU against the CPU, and figures beside their bounds."""

"""What a run would do, what it would cost, whether this machine can do it, and why."""

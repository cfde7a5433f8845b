"""The workflow: rules, their inputs and settings, and planning."""

from cort.runtime.interruption import end_in_one_line

# Here, because importing the modules of this package takes seconds, in which Ctrl-C may come.
end_in_one_line("interrupted; the same command goes on")

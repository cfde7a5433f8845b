"""Plans of runs, their costs, and checks of this machine.

A `config` has all defaults; paths are relative to `folder`, the project's root or a copy of it.
"""

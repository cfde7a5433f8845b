"""What a run would do, what it would cost, and whether this machine can do it.

A `config` has all defaults; a `folder` is the project's root, or a copy of it, which all paths are relative to.
"""

"""Stages with several commands: the first word of the command line names one, and each has its own options.

Such a stage module has ``COMMANDS`` and ``main = main_of_commands(COMMANDS)``.
"""

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cort.runtime.cli import main_of, parser_of

#: name -> options and function of a command; the docstring of the options is its help
Commands = Mapping[str, tuple[type[Any], Callable[[Any], None]]]


def main_of_commands(commands: Commands) -> Callable[..., int]:
    """Create a stage's ``main(argv)``, which runs the command that the first word names."""

    def main(argv: Sequence[str] | None = None) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        if not words or words[0] not in commands:
            # Prints the help or an error, and exits.
            _overview(commands).parse_args(words)
        name, *arguments = words
        return main_of(*commands[name], name)(arguments)

    return main


def _overview(commands: Commands) -> argparse.ArgumentParser:
    """Create a parser that knows the names of the commands, and what each does."""
    stage = parser_of(next(iter(commands.values()))[0])
    parser = argparse.ArgumentParser(
        prog=stage.prog, description=stage.description, formatter_class=stage.formatter_class
    )
    choices = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, (options, _) in commands.items():
        choices.add_parser(name, help=(inspect.getdoc(options) or "").partition("\n")[0])
    return parser

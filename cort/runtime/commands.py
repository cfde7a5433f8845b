"""Stages with several commands, each a module with ``Options`` and ``stage``; the first word of the line names one.

The module of the stage has ``COMMANDS``, command -> module, and ``main = main_of_commands(STAGE, __doc__, COMMANDS)``.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module

from cort.runtime.cli import main_of


def main_of_commands(stage: str, about: str | None, commands: Mapping[str, str]) -> Callable[..., int]:
    """Create a stage's ``main(argv)``, which imports the module of the command, and no other.

    :param about: the text of `--help`; a command shows the docstring of its module.
    """
    prog = f"python -m {stage}"

    def main(argv: Sequence[str] | None = None) -> int:
        words = list(sys.argv[1:] if argv is None else argv)
        if not words or words[0] not in commands:
            # Prints the help or an error, and exits.
            _overview(prog, about, commands).parse_args(words)
        module = import_module(commands[words[0]])
        return main_of(module.Options, module.stage, f"{prog} {words[0]}")(words[1:])

    return main


def module_of(stage: str) -> str:
    """Return the module of a stage (``"cort.fuse"``) or of one of its commands (``"cort.encode tokens"``)."""
    name, _, command = stage.partition(" ")
    return str(import_module(name).COMMANDS[command]) if command else name


def _overview(prog: str, about: str | None, commands: Mapping[str, str]) -> argparse.ArgumentParser:
    """Create a parser that knows the names of the commands, and what each does."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=prog, description=about, formatter_class=form)
    choices = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, module in commands.items():
        choices.add_parser(name, help=(import_module(module).__doc__ or "").partition("\n")[0])
    return parser

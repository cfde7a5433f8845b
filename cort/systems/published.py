"""Runs made outside this workflow."""

from __future__ import annotations

from collections.abc import Iterator

from cort.config import paths
from cort.config.entries import listed
from cort.runtime.sections import Section, Text
from cort.systems.base import System


class Published(System):
    """Published run files, one per split."""

    rule = "import_run"
    searchable = False

    class Settings(Section):
        """Keys of this kind."""

        run: Text | dict[Text, Text]
        """A run file from elsewhere: a path, with `{split}` if there are several splits, or paths by split."""

    entry: Settings

    def splits(self) -> list[str]:
        """List the splits with a file."""
        run = self.entry.run
        return [split for split in self.results.ranked_splits if not isinstance(run, dict) or split in run]

    def published(self, split: str) -> tuple[str, str] | None:
        """Return the file for a split, if there is one, and where the config names it."""
        run = self.entry.run
        if not isinstance(run, dict):
            return run.replace("{split}", split), f"{self.place}.run"
        return (run[split], f"{self.place}.run.{split}") if split in run else None

    def check(self) -> Iterator[str]:
        """Check that the files match the splits."""
        run, splits, place = self.entry.run, self.results.ranked_splits, f"{self.place}.run"
        if isinstance(run, str) and "{split}" not in run and len(splits) > 1:
            yield f"{place}: found one path for the splits {listed(splits)}, expected {{split}} in it; add it"
        for split in run if isinstance(run, dict) else []:
            if split not in splits:
                yield f"{place}: found the split {split!r}, expected one of {listed(splits)}; fix the name"

    def describe(self) -> str:
        """Say that it is a published run."""
        return "published run"

    def inputs(self, split: str) -> dict[str, str | list[str]]:
        """Name the file, and the queries and passages that its ids are checked against."""
        file, _ = self.published(split) or ("", "")
        return {
            "run": file,
            "queries": self.results.at(paths.QUERIES, split=split),
            "passages": self.results.at(paths.PASSAGES),
        }

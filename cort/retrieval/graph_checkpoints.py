"""Builds of graphs that resume after an interruption: the unfinished graph is saved from time to time."""

import hashlib
import json
import logging
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from cort.formats.artifacts import read_artifact, write_artifact
from cort.runtime.checksums import checksum
from cort.runtime.errors import InputError, input_error
from cort.runtime.files import atomic_folder
from cort.runtime.program import program_of
from cort.runtime.sections import ArrowFile, FolderPath, Maybe, Section, Several

PROGRESS_FILE = "progress.json"
# A checkpoint writes the whole graph. The next one waits this many times as long as the last one took, so that they
# take a twentieth of the time; but at most this many times `checkpoint_every`, as an interruption loses what follows.
TIMES_ITS_COST, MOST = 19, 12

log = logging.getLogger(__name__)


class GraphBuildOptions(Section):
    """Options of stages that build a graph."""

    passages: Several[ArrowFile]
    """All embedding shards."""
    checkpoints: Maybe[FolderPath] = None
    """Keeps the unfinished graph; removed at the end."""
    checkpoint_every: float = 600.0
    """Seconds between two checkpoints; more if they take long."""
    output: FolderPath


@dataclass(frozen=True)
class Progress:
    """What belongs to an unfinished graph: its identity, the number of vectors added, checksums of its files."""

    identity: str
    added: int
    files: dict[str, str]


class Checkpoints:
    """The folder of an unfinished graph, replaced as a whole now and then; or nothing without --checkpoints.

    :param decisive: all that determines the bytes of the graph, but for the vectors and the code of `module`.
    """

    def __init__(self, options: GraphBuildOptions, module: str, decisive: object) -> None:
        self._folder, self._every = Path(options.checkpoints or "") / "graph", options.checkpoint_every
        self._on, self._saved, self._identity = options.checkpoints is not None, time.monotonic(), ""
        self._began, self._cost = self._saved, 0.0
        if self._on:
            made_from = [[*map(checksum, options.passages)], program_of(module), decisive]
            self._identity = hashlib.sha256(json.dumps(made_from, sort_keys=True).encode()).hexdigest()

    def saved(self) -> tuple[Path, int]:
        """Return the folder of the saved graph, if it is whole and of this build, and its number of vectors, or 0."""
        if not (self._on and self._folder.exists()):
            return self._folder, 0
        try:
            saved = read_artifact(self._folder / PROGRESS_FILE, Progress)
            # Libraries crash on some damage.
            for path in map(self._folder.joinpath, saved.files):
                if checksum(path) != saved.files[path.name]:
                    raise input_error(path, "other bytes", "those that were written", "delete it")
        except (InputError, OSError) as error:
            log.warning("the build begins anew, without a damaged checkpoint: %s", error)
            shutil.rmtree(self._folder)
            return self._folder, 0
        if saved.identity != self._identity:
            log.info("%s holds an unfinished graph of another build: ignored", self._folder)
            return self._folder, 0
        log.info("resumes after %d vectors", saved.added)
        return self._folder, saved.added

    def due(self) -> bool:
        """Whether it is time to save the graph, which then begins."""
        self._began = time.monotonic()
        pause = min(max(self._every, TIMES_ITS_COST * self._cost), MOST * self._every)
        return self._on and self._began - self._saved >= pause

    def keep(self, work: Path, added: int) -> None:
        """Replace the saved graph by the files that were just written to `work` and are not read again."""
        with atomic_folder(self._folder) as folder:
            for path in work.iterdir():
                shutil.move(path, folder / path.name)
            sums = {path.name: checksum(path) for path in folder.iterdir()}
            write_artifact(folder / PROGRESS_FILE, Progress(self._identity, added, sums))
        self._saved = time.monotonic()
        self._cost = self._saved - self._began

    def remove(self) -> None:
        """Remove the whole folder, which a finished graph does not need."""
        if self._on:
            shutil.rmtree(self._folder.parent, ignore_errors=True)

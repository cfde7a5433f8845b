"""A server of started Pythons: each call is a copy of this process, which has imported third-party libraries.

Tests call Snakemake some 200 times, and Snakemake some 700 stages; imports took most of their time. What they share of
the project is imported here, too: a copy takes it for its own if its working folder has the same files, and imports all
anew if a test changed one. Whatever a copy touches of what is here, the kernel copies, page by page: a twentieth of a
second for all names of all modules. This file is run, not imported; `forkclient.py` starts and calls it.

Usage: python tests/support/forkserver.py SOCKET PID   serves until process PID ends
"""

import array
import atexit
import contextlib
import gc
import importlib
import marshal
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path
from typing import NamedTuple

from forkclient import EXECUTABLE, SEARCH
from rules_once import remember_rules

# What stages import, and what they import only when they are called.
STAGES = (
    "numpy pandas scipy.stats scipy.sparse pyarrow.parquet pyarrow.csv pyarrow.compute pyarrow.ipc yaml jinja2 torch"
)
STAGES += " torch.utils.tensorboard accelerate transformers.models.bert.modeling_bert safetensors.torch tokenizers"
STAGES += " transformers.models.auto.modeling_auto transformers.models.auto.tokenization_auto pytrec_eval ngt"
STAGES += " matplotlib.pyplot matplotlib.backends.backend_svg sentence_transformers filelock httpx openai psutil"
SNAKEMAKE = "snakemake.cli snakemake.report.html_reporter smart_open jsonschema"
# What several stages, or Snakemake, import of the project.
SHARED = ("config", "evaluation", "formats", "models", "reporting", "retrieval", "runtime", "systems", "training")
PACKAGES = ("cort", "workflow")
FORKED = str(Path(__file__).with_name("forked") / "python")
NOT_IMPORTED = ("__pycache__", "rules", "templates")
ROOT = Path(__file__).parents[2]


class Imported(NamedTuple):
    """What is shared of the project: its files, its modules, and the names in these that are paths in its folder."""

    files: dict
    modules: list
    paths: list


def preload():
    """Import libraries, and what is shared of the project.

    One that is not installed is missed by whoever imports it.
    """
    files, place = files_of(ROOT), str(ROOT)
    sys.path.insert(0, place)
    parts = {f"cort.{part}.": ROOT / "cort" / part for part in SHARED} | {"workflow.": ROOT / "workflow"}
    project = (found.name for start, part in parts.items() for found in pkgutil.iter_modules([str(part)], start))
    for name in [*f"{STAGES} {SNAKEMAKE}".split(), *project]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # Every start of Snakemake checks a config by it.
    sys.modules["cort.config.root"].Root.model_rebuild()
    sys.path.remove(place)
    own = [name for name in sys.modules if name.partition(".")[0] in PACKAGES]
    paths = [(name, key) for name in own for key, value in vars(sys.modules[name]).items() if is_own(value)]
    gc.collect()
    gc.freeze()
    return Imported(files, own, paths)


def is_own(value):
    """Tell whether something is a path in the project's folder."""
    return isinstance(value, Path) and value.is_relative_to(ROOT)


def files_of(folder):
    """Size and time of each file of what is shared, by its path in a folder."""
    found, waiting = {}, [os.path.join(folder, part) for part in ("workflow", *(f"cort/{one}" for one in SHARED))]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.is_dir(follow_symlinks=False):
                waiting += [entry.path] * (entry.name not in NOT_IMPORTED)
            elif entry.is_file():
                state = entry.stat()
                found[entry.path.removeprefix(f"{folder}/")] = state.st_size, state.st_mtime_ns
    return found


def move_project(folder, imported):
    """Make what was imported of the project that of a folder with the same files, or forget it."""
    try:
        same = files_of(folder) == imported.files and "COVERAGE_PROCESS_CONFIG" not in os.environ
    except OSError:
        same = False
    if not same:
        for name in imported.modules:
            del sys.modules[name]
        return
    for name in imported.modules:
        module = sys.modules[name]
        module.__file__ = module.__spec__.origin = module.__file__.replace(str(ROOT), folder, 1)
        if hasattr(module, "__path__"):
            module.__path__[:] = [path.replace(str(ROOT), folder, 1) for path in module.__path__]
    for name, key in imported.paths:
        value = getattr(sys.modules[name], key)
        setattr(sys.modules[name], key, folder / value.relative_to(ROOT))
    # What the package does when it is imported depends on the environment.
    importlib.reload(sys.modules["cort"])


def receive(connection):
    """Read a call: its words, folder and environment, and three descriptors, or four."""
    size = array.array("i")
    data, ancillary, *_ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(4 * size.itemsize))
    for _, _, descriptors in ancillary:
        size.frombytes(descriptors)
    length = int.from_bytes(data[:8], "little")
    while len(data) < 8 + length:
        data += connection.recv(1 << 20)
    return marshal.loads(data[8:]), list(size)  # noqa: S302 - from `forkclient.py`


def become(call, descriptors, imported):
    """Do in a copy what `python -m MODULE ...` would do; return the exit status."""
    for target, descriptor in enumerate(descriptors[:3]):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    (module, *words), folder, environment = call
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.path[:1] = [folder, *filter(None, environment.get("PYTHONPATH", "").split(os.pathsep))]
    sys.argv = [module, *words]
    # Builds start stages by a shell, which finds the same by `PATH`.
    sys.executable = environment.get(EXECUTABLE, FORKED if module.startswith("cort.") else sys.executable)
    move_project(os.getcwd(), imported)
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        importlib.import_module("coverage").process_startup()
    try:
        if [module, *words[:1]] == SEARCH:
            sys.argv = ["-c", str(descriptors[3]), *words[2:]]
            importlib.import_module("cort.retrieval.lucene").main()
        else:
            if module in imported.modules:
                sys.modules.pop(module, None)
            runpy.run_module(module, run_name="__main__", alter_sys=True)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


def serve(place, parent):
    """Answer calls until a process ends. A copy whose caller ends is ended, too."""
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(f"{place}.new")
    listening.listen(100)
    os.rename(f"{place}.new", place)
    waiting = selectors.DefaultSelector()
    waiting.register(listening, selectors.EVENT_READ)
    waiting.register(os.pidfd_open(parent), selectors.EVENT_READ)
    while True:
        for key, _ in waiting.select():
            match key.data:
                case None if key.fileobj is not listening:
                    return
                case None:
                    connection, _ = listening.accept()
                    call, descriptors = receive(connection)
                    if (pid := os.fork()) == 0:
                        waiting.close()
                        listening.close()
                        connection.close()
                        return call, descriptors
                    connection.sendall(pid.to_bytes(8, "little"))
                    for descriptor in descriptors:
                        os.close(descriptor)
                    ended = os.pidfd_open(pid)
                    waiting.register(ended, selectors.EVENT_READ, (pid, ended, connection, True))
                    waiting.register(connection, selectors.EVENT_READ, (pid, ended, connection, False))
                case pid, ended, connection, True:
                    waiting.unregister(ended)
                    os.close(ended)
                    with contextlib.suppress(KeyError):
                        waiting.unregister(connection)
                    _, status = os.waitpid(pid, 0)
                    with contextlib.suppress(OSError):
                        connection.sendall(os.waitstatus_to_exitcode(status).to_bytes(8, "little", signed=True))
                    connection.close()
                case pid, _, connection, False:
                    waiting.unregister(connection)
                    os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    imported = preload()
    remember_rules(os.path.dirname(sys.argv[1]))
    asked = serve(sys.argv[1], int(sys.argv[2]))
    if asked:
        status = become(*asked, imported)
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)

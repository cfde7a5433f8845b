"""A server of started Pythons: each call is a copy of this process, which has imported third-party libraries.

Tests call Snakemake some 200 times, and Snakemake some 700 stages; imports took most of their time. What they share of
the project is imported here, too: a copy takes it for its own if its working folder has the same files, and imports all
anew if a test changed one. This file is run, not imported; `forkclient.py` starts and calls it.

Usage: python tests/support/forkserver.py SOCKET PID   serves until process PID ends
"""

import array
import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import runpy
import selectors
import signal
import socket
import sys
import threading
from pathlib import Path

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
ROOT = Path(__file__).parents[2]


def preload():
    """Import libraries, and what is shared of the project; return its files.

    One that is not installed is missed by whoever imports it.
    """
    files, place = files_of(ROOT), str(ROOT)
    sys.path.insert(0, place)
    parts = [str(ROOT / "cort" / part) for part in SHARED]
    project = (found.name for part in parts for found in pkgutil.iter_modules([part], f"cort.{Path(part).name}."))
    for name in [*f"{STAGES} {SNAKEMAKE}".split(), *project]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    sys.path.remove(place)
    gc.collect()
    gc.freeze()
    return files


def files_of(folder):
    """Size and time of each file of the project's package, by its path in a folder."""
    found, waiting = {}, [os.path.join(folder, "cort")]
    while waiting:
        for entry in os.scandir(waiting.pop()):
            if entry.is_dir() and entry.name != "__pycache__":
                waiting.append(entry.path)
            elif entry.is_file():
                state = entry.stat()
                found[entry.path.removeprefix(f"{folder}/")] = state.st_size, state.st_mtime_ns
    return found


def move_project(folder, files):
    """Make what was imported of the project that of a folder with the same files, or forget it."""
    try:
        same = files_of(folder) == files and "COVERAGE_PROCESS_CONFIG" not in os.environ
    except OSError:
        same = False
    for name in [name for name in sys.modules if name.partition(".")[0] == "cort"]:
        if not same:
            del sys.modules[name]
            continue
        module = sys.modules[name]
        module.__file__ = module.__spec__.origin = module.__file__.replace(str(ROOT), folder, 1)
        if hasattr(module, "__path__"):
            module.__path__[:] = [path.replace(str(ROOT), folder, 1) for path in module.__path__]
        for key, value in vars(module).items():
            if isinstance(value, Path) and value.is_relative_to(ROOT):
                setattr(module, key, folder / value.relative_to(ROOT))
    if same:
        # What the package does when it is imported depends on the environment.
        importlib.reload(sys.modules["cort"])


def receive(connection):
    """Read a call: its words, folder and environment, and three descriptors."""
    size = array.array("i")
    data, ancillary, *_ = connection.recvmsg(1 << 20, socket.CMSG_SPACE(3 * size.itemsize))
    for _, _, descriptors in ancillary:
        size.frombytes(descriptors)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    return json.loads(data), list(size)


def become(call, descriptors, files):
    """Do in a copy what `python -m MODULE ...` would do; return the exit status."""
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    module, *words = call["words"]
    path = call["environment"].get("PYTHONPATH", "")
    sys.path[:1] = [call["folder"], *filter(None, path.split(os.pathsep))]
    sys.argv = [module, *words]
    move_project(os.getcwd(), files)
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        importlib.import_module("coverage").process_startup()
    try:
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
                        connection.sendall(str(os.waitstatus_to_exitcode(status)).encode())
                    connection.close()
                case pid, _, connection, False:
                    waiting.unregister(connection)
                    os.kill(pid, signal.SIGTERM)


if __name__ == "__main__":
    imported = preload()
    asked = serve(sys.argv[1], int(sys.argv[2]))
    if asked:
        status = become(*asked, imported)
        threading._shutdown()
        atexit._run_exitfuncs()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)

"""Calls of the server of started Pythons, which the first call starts.

Of the standard library alone, as each stage that a test builds begins with it.
"""

import fcntl
import json
import os
import socket
import subprocess
import sys
import time

#: environment variables: path of the server's socket, and the process that it ends with
PLACE, OWNER = "CORT_FORK_SERVER", "CORT_FORK_OWNER"
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forkserver.py")


def call(words, folder, environment, descriptors):
    """Run `python -m` with some words in a folder; return its exit status, below 0 for a signal."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(started())
        said = json.dumps({"words": list(words), "folder": folder, "environment": environment}).encode() + b"\n"
        sent = socket.send_fds(connection, [said], descriptors)
        connection.sendall(said[sent:])
        # Nothing, if the server ended.
        return int(connection.recv(100) or 1)


def started():
    """Start the server, if nobody has; return its place."""
    place = os.environ[PLACE]
    if os.path.exists(place):
        return place
    with open(f"{place}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.exists(place):
            # Without the tracer of `make coverage`: the copies begin their own.
            environment = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
            command = [sys.executable, SERVER, place, environment[OWNER]]
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            server = subprocess.Popen(command, env=environment, cwd="/", start_new_session=True, **pipes)
            # However busy the machine is.
            while not os.path.exists(place) and server.poll() is None:
                time.sleep(0.05)
    return place

"""Calls of the server of started Pythons, which the first call starts.

Each stage that a test builds begins with it. It imports only what Python is made of, as `json` and `socket` would take
most of its time.

Usage: python -SE tests/support/forkclient.py WORD ...   runs a module of the project, or a search by Lucene, as a copy
of the server, and everything else as Python does
"""

import _socket
import marshal
import os
import sys

#: environment variables: path of the server's socket, and the process that it ends with
PLACE, OWNER = "CORT_FORK_SERVER", "CORT_FORK_OWNER"
#: environment variable: what a copy takes for its Python, and starts others with
EXECUTABLE = "CORT_EXECUTABLE"
#: begin of the words of a search by Lucene, whose first argument is the descriptor of a connection to its parent
SEARCH = ["-c", "from cort.retrieval.lucene import main; main()"]
SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "forkserver.py")


def call(words, folder, environment, descriptors):
    """Run `python -m` with some words in a folder; return its exit status, below 0 for a signal."""
    connection, _ = begin(words, folder, environment, descriptors)
    try:
        return status_of(connection)
    finally:
        connection.close()


def begin(words, folder, environment, descriptors):
    """Start `python -m` with some words in a folder; return a connection that ends it if closed, and its process."""
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    connection.connect(started())
    said = marshal.dumps((list(words), folder, environment))
    message = len(said).to_bytes(8, "little") + said
    passed = b"".join(one.to_bytes(4, sys.byteorder) for one in descriptors)
    sent = connection.sendmsg([message], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    connection.sendall(message[sent:])
    return connection, int.from_bytes(connection.recv(8, _socket.MSG_WAITALL), "little")


def status_of(connection):
    """Wait for the end of what was begun; its exit status, 1 if the server ended."""
    said = connection.recv(8, _socket.MSG_WAITALL)
    return int.from_bytes(said, "little", signed=True) if said else 1


def started():
    """Start the server, if nobody has; return its place."""
    place = os.environ[PLACE]
    if os.path.exists(place):
        return place
    import fcntl
    import subprocess
    import time

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


def main(words):
    """Do what `python` with these words does; return the exit status."""
    if words[:2] == SEARCH:
        words, descriptors = ["-m", *words], (0, 1, 2, int(words[2]))
    elif words[:1] == ["-m"] and words[1].startswith(("cort.", "workflow.")) and "CORT_LAUNCHER" not in os.environ:
        descriptors = (0, 1, 2)
    else:
        # What another process launched may have to be its child.
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606 - as a shell does
    status = call(words[1:], os.getcwd(), dict(os.environ), descriptors)
    if status < 0:
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""Servers of tests on 127.0.0.1."""

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Handler(BaseHTTPRequestHandler):
    """One connection, one response, and no log."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        """Say nothing."""


@contextmanager
def running(handler, state_of, context=None):
    """Serve with a handler, whose `self.server.state` is made of the URL; yield this state.

    With an SSL context, it speaks HTTPS. At the end, an event that the state calls `closing` is set.
    """
    http = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    http.daemon_threads = True
    if context:
        http.socket = context.wrap_socket(http.socket, server_side=True)
    http.state = state_of(f"http{'s' if context else ''}://127.0.0.1:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield http.state
    finally:
        http.state.closing.set()
        http.shutdown()
        http.server_close()
        thread.join()

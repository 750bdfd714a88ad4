#!/usr/bin/env python3
"""A backend for the demo: answers every request with its own name and with what it was asked.

    examples/backend.py NAME PORT
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Backend(BaseHTTPRequestHandler):
    # Envoy keeps its connections open.
    protocol_version = "HTTP/1.1"

    def answer(self):
        self.rfile.read(int(self.headers.get("content-length", 0)))
        lines = [f"hello from {NAME}", f"{self.command} {self.path}"]
        lines += [f"{name.lower()}: {value}" for name, value in self.headers.items()]
        body = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("content-type", "text/plain")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = do_DELETE = answer

    def log_message(self, *_):
        pass  # The answer says it all.


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("usage: backend.py NAME PORT")
    NAME = sys.argv[1]
    try:
        server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Backend)
    except (OSError, OverflowError) as error:
        sys.exit(f"backend.py: port {sys.argv[2]}: {error}")
    server.serve_forever()

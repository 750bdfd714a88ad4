#!/usr/bin/env python3
"""A backend for TCPRoutes: says its name to everybody who connects, and then repeats what it receives.

    examples/tcp/echo.py NAME PORT
"""

import sys
from socketserver import StreamRequestHandler, ThreadingTCPServer


class Echo(StreamRequestHandler):
    def handle(self):
        self.wfile.write(f"hello from {NAME}\n".encode())
        for line in self.rfile:
            self.wfile.write(line)


class Server(ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdigit():
        sys.exit("usage: echo.py NAME PORT")
    NAME = sys.argv[1]
    try:
        server = Server(("127.0.0.1", int(sys.argv[2])), Echo)
    except (OSError, OverflowError) as error:
        sys.exit(f"echo.py: port {sys.argv[2]}: {error}")
    server.serve_forever()

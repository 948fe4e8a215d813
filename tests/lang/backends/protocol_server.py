"""A small HTTP server that speaks docs/protocol.md for a scripted model."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import sgl


class ProtocolHandler(BaseHTTPRequestHandler):
    """Hands payloads to `server.model`."""

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        self._answer({})

    def do_POST(self):
        payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if payload.get("stream"):
            self._answer_stream(payload)
        else:
            self._answer(payload)

    def log_message(self, *args):
        """Say nothing."""

    def _answer(self, payload):
        self.server.headers_seen.append(self.headers.get("Authorization"))
        try:
            status, reply = 200, asyncio.run(self.server.model.call(self.path, payload))
        except sgl.BackendError as error:
            status, reply = error.status, error_reply(error)
        body = json.dumps(reply, ensure_ascii=False).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _answer_stream(self, payload):
        async def events():
            try:
                return [event async for event in self.server.model.stream(self.path, payload)]
            except sgl.BackendError as error:
                return [error_reply(error)]

        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        for event in asyncio.run(events()):
            self.wfile.write(b"data: " + json.dumps(event, ensure_ascii=False).encode() + b"\n\n")
        if not self.server.breaks_off:
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True


def error_reply(error):
    return {"error": {"message": str(error), "type": "error", "param": error.param, "code": error.code}}


@contextmanager
def protocol_server(model, *, breaks_off=False) -> Iterator[ThreadingHTTPServer]:
    """A server on a free port of this machine; it has the attribute `url`."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), ProtocolHandler)
    server.model, server.headers_seen, server.breaks_off = model, [], breaks_off
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

"""A small HTTP server that speaks the form of OpenAI's chat and completion endpoints."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class OpenAIHandler(BaseHTTPRequestHandler):
    """Answers by `server.answer(body)`: a text, a pair of thinking and text, or a dict of an error with its status."""

    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server = self.server
        server.requests.append((self.path, body, self.headers.get("Authorization")))
        answer = server.answer(body)
        thinking, answer = answer if isinstance(answer, tuple) else ("", answer)
        if isinstance(answer, dict):
            self._send(answer["status"], {"error": answer})
        elif body.get("stream"):
            try:
                self._stream(body, answer, thinking)
            except ConnectionError:
                self.close_connection = True
                server.has_lost_client.set()
        else:
            self._send(200, {**head(self.path), "choices": [choice(body, answer, thinking)], "usage": usage(answer)})

    def log_message(self, *args):
        """Say nothing."""

    def _send(self, status, reply):
        data = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _stream(self, body, answer, thinking):
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        is_chat = "messages" in body
        shared = head(self.path, is_chunk=is_chat)
        for letter in thinking:
            self._event({**shared, "choices": [{"index": 0, "delta": {"reasoning_content": letter}}]})
        for letter in answer:
            piece = {"delta": {"content": letter}} if is_chat else {"text": letter}
            self._event({**shared, "choices": [{"index": 0, "finish_reason": None, **piece}]})
        if not self.server.breaks_off:
            last = {"delta": {}} if is_chat else {"text": ""}
            self._event({**shared, "choices": [{"index": 0, "finish_reason": "stop", **last}]})
            self._event({**shared, "choices": [], "usage": usage(answer)})
            self.wfile.write(b"data: [DONE]\n\n")
        self.close_connection = True

    def _event(self, event):
        self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")


def head(path, *, is_chunk=False):
    kind = "text_completion" if path.endswith("/v1/completions") else "chat.completion"
    return {"id": "one", "object": kind + (".chunk" if is_chunk else ""), "created": 1, "model": "stub"}


def usage(answer):
    details = {"cached_tokens": 3}
    return {
        "prompt_tokens": 5,
        "completion_tokens": len(answer),
        "total_tokens": 5 + len(answer),
        "prompt_tokens_details": details,
    }


def choice(body, answer, thinking=""):
    limit = body.get("max_completion_tokens", body.get("max_tokens"))
    result = {"index": 0, "finish_reason": "stop" if len(answer) <= limit else "length"}
    shown = answer[:limit]
    if "messages" in body:
        content = [{"token": letter, "logprob": -0.5, "bytes": None, "top_logprobs": []} for letter in shown]
        logprobs = {"content": content} if body.get("logprobs") else None
        message = {"role": "assistant", "content": shown, **({"reasoning_content": thinking} if thinking else {})}
        return {**result, "message": message, "logprobs": logprobs}
    count = len(shown)
    logprobs = {"tokens": list(shown), "token_logprobs": [-0.5] * count, "text_offset": [0] * count}
    return {**result, "text": shown, "logprobs": logprobs if "logprobs" in body else None}


@contextmanager
def openai_stub(answer, *, breaks_off=False):
    """A server on a free port; `answer` takes the body of a request."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), OpenAIHandler)
    server.answer, server.requests, server.breaks_off = answer, [], breaks_off
    server.has_lost_client = threading.Event()
    server.url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

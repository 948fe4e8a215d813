"""Requests that nobody in their right mind would send, made from a seed."""

import gzip
import json
import random
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

from fakes.request_examples import EXAMPLES

ODD_VALUES: list[Any] = [
    None,
    True,
    -1,
    0,
    1,
    2**31,
    2**63,
    -(2**63) - 1,
    10**300,
    0.5,
    -0.0,
    1e-320,
    1e308,
    "",
    "x",
    "\x00",
    "a\x00b",
    "é漢👩‍👩‍👧\u202e",
    "(" * 300,
    "[a-z]*" * 40,
    "((a*)*)*b",
    "x" * 5000,
    "../../etc/passwd",
    "{{7*7}}",
    "</s><s>",
    [],
    [[]],
    [None],
    [0] * 300,
    {},
    {"": ""},
    {"type": "string", "pattern": "("},
    {"$ref": "#"},
    {"allOf": [{"$ref": "#/allOf/0"}]},
]
_ODD_BYTES = [
    b"\x00",
    b"\xff",
    b"\xc3",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x92",
    b"\xef\xbb\xbf",
    b"\\ud800",
    b"\\u0000",
    b"NaN",
    b"Infinity",
    b"1e99999",
    b"-",
    b"9" * 400,
    b'"',
    b"\\",
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"//",
    b"\r\n",
    b"'",
]
_HEADS = [
    b"content-type: text/plain\r\n",
    b"content-type: multipart/form-data; boundary=x\r\n",
    b"content-type: application/json; charset=utf-16\r\n",
    b"content-type: \xff\xfe\r\n",
    b"content-encoding: gzip\r\n",
    b"content-encoding: br, deflate\r\n",
    b"accept: text/html\r\n",
    b"expect: 100-continue\r\n",
    b"upgrade: websocket\r\nconnection: upgrade\r\n",
    b"upgrade: h2c\r\nhttp2-settings: AAMAAABk\r\nconnection: upgrade, http2-settings\r\n",
    b"x-request-id: " + b"a" * 200 + b"\r\n",
    b"x-request-id: a b\r\n",
    b"traceparent: 00-zz-zz-01\r\n",
    b"authorization: Bearer \xe9\r\n",
    b"range: bytes=0-1\r\n",
    b"".join(b"x-%d: y\r\n" % number for number in range(200)),
    b"cookie: " + b"c=d; " * 500 + b"\r\n",
]


@dataclass(frozen=True)
class RawRequest:
    """Bytes for a connection of its own.

    Attributes:
        data: What is sent.
        is_http: Whether it is one whole and valid request, which must be answered.
    """

    data: bytes
    is_http: bool


class HostileBodies:
    """Makes requests, the same ones from the same seed.

    Args:
        seed: The seed.
        paths: POST paths of the server.
    """

    def __init__(self, seed: int, paths: list[str]) -> None:
        self._rng = random.Random(seed)
        self._paths = paths

    def next_request(self) -> RawRequest:
        """One more."""
        rng = self._rng
        path = rng.choice(self._paths)
        kind = rng.choices(
            [self._noise, self._broken_text, self._odd_fields, self._nested, self._doubled], weights=[3, 5, 8, 1, 1]
        )[0]
        return self._framed(path, kind(path))

    def _example(self, path: str) -> Any:
        return json.loads(json.dumps(self._rng.choice(EXAMPLES[path])))

    def _noise(self, path: str) -> bytes:
        return self._rng.randbytes(self._rng.choice([0, 1, 2, 7, 100, 3000]))

    def _broken_text(self, path: str) -> bytes:
        rng = self._rng
        data = bytearray(json.dumps(self._example(path), ensure_ascii=rng.random() < 0.5).encode())
        for _ in range(rng.randint(1, 4)):
            begin = rng.randrange(len(data) + 1)
            end = min(len(data), begin + rng.choice([0, 0, 1, 1, 5, 40]))
            data[begin:end] = rng.choice([b"", bytes(data[begin:end]) * 2, rng.randbytes(2), rng.choice(_ODD_BYTES)])
        return bytes(data[: rng.randrange(len(data) + 1)] if rng.random() < 0.2 else data)

    def _odd_fields(self, path: str) -> bytes:
        rng = self._rng
        body = self._example(path)
        for _ in range(rng.choice([0, 1, 1, 2, 3])):
            container, key = places(body)[rng.randrange(len(places(body)))] if places(body) else (None, None)
            if container is None or (isinstance(body, dict) and rng.random() < 0.1):
                body[rng.choice(["", "model", "stream", "\x00", "x" * 300, "__proto__"])] = deepcopy(
                    rng.choice(ODD_VALUES)
                )
            else:
                container[key] = deepcopy(rng.choice(ODD_VALUES))
        return json.dumps(body, ensure_ascii=rng.random() < 0.5).encode()

    def _nested(self, path: str) -> bytes:
        depth = self._rng.choice([50, 900, 20_000])
        opening, closing = self._rng.choice([(b"[", b"]"), (b'{"a":', b"}"), (b'{"allOf":[', b"]}")])
        deep = opening * depth + b"1" + closing * (depth if self._rng.random() < 0.8 else 0)
        name = self._rng.choice(["sampling_params", "messages", "tools", "input", "json_schema", "text", "x"])
        return b'{"text": "a", "%s": %s}' % (name.encode(), deep)

    def _doubled(self, path: str) -> bytes:
        text = json.dumps(self._example(path)).encode()
        return text[:-1] + b"," + text[1:] if len(text) > 2 else text * 2

    def _framed(self, path: str, body: bytes) -> RawRequest:
        rng = self._rng
        line = b"POST %s HTTP/1.1\r\nhost: x\r\n" % path.encode()
        extra = rng.choice(_HEADS) if rng.random() < 0.25 else b""
        length = b"content-length: %d\r\n" % len(body)
        plain = RawRequest(line + extra + length + b"\r\n" + body, is_http=b"\xff" not in extra)
        if rng.random() < 0.75:
            return plain
        chunk = b"%x\r\n%s\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        framings = [
            # Chunked as it should be, and in many pieces.
            RawRequest(line + extra + b"transfer-encoding: chunked\r\n\r\n" + chunk, is_http=b"\xff" not in extra),
            RawRequest(
                line
                + b"transfer-encoding: chunked\r\n\r\n"
                + b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in body[:200])
                + b"0\r\n\r\n",
                is_http=True,
            ),
            # Chunk sizes that are none, or do not fit.
            RawRequest(line + b"transfer-encoding: chunked\r\n\r\nzz\r\n" + body, is_http=False),
            RawRequest(line + b"transfer-encoding: chunked\r\n\r\n-1\r\n" + body, is_http=False),
            RawRequest(line + b"transfer-encoding: chunked\r\n\r\nffffffffffffffff\r\n" + body, is_http=False),
            RawRequest(line + b"transfer-encoding: chunked\r\n\r\n" + b"0" * 3000 + b"1\r\nx\r\n", is_http=False),
            # Lengths that are none, or do not fit.
            RawRequest(line + b"content-length: %d\r\n\r\n" % (len(body) + 5) + body, is_http=False),
            RawRequest(line + b"content-length: %d\r\n\r\n" % max(0, len(body) - 5) + body, is_http=False),
            RawRequest(line + b"content-length: -1\r\n\r\n" + body, is_http=False),
            RawRequest(line + b"content-length: 99999999999999999999\r\n\r\n" + body, is_http=False),
            RawRequest(line + b"content-length: 5\r\ncontent-length: 6\r\n\r\n" + body, is_http=False),
            # Two requests in the clothes of one.
            RawRequest(
                line + length + b"transfer-encoding: chunked\r\n\r\n" + chunk + b"GET /health HTTP/1.1\r\n\r\n",
                is_http=False,
            ),
            RawRequest(line + b"transfer-encoding: chunked, identity\r\n\r\n" + chunk, is_http=False),
            RawRequest(line + b"transfer-encoding : chunked\r\n" + length + b"\r\n" + body, is_http=False),
            # What is no HTTP/1.1 request.
            RawRequest(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", is_http=False),
            RawRequest(b"\x16\x03\x01\x02\x00" + rng.randbytes(60), is_http=False),
            RawRequest(b"POST %s HTTP/9.9\r\n\r\n" % path.encode() + body, is_http=False),
            RawRequest(b"BREW %s HTTP/1.1\r\nhost: x\r\n\r\n" % path.encode(), is_http=False),
            RawRequest(b"POST %s%s HTTP/1.1\r\nhost: x\r\n\r\n" % (path.encode(), b"/../%00%ff?a=%"), is_http=False),
            RawRequest(b"POST /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n", is_http=False),
            RawRequest(line + b"x: " + b"y" * 70_000 + b"\r\n\r\n", is_http=False),
            RawRequest(line + b"x: y\n\rz\r\n" + length + b"\r\n" + body, is_http=False),
            RawRequest(line + b"content-encoding: gzip\r\n" + _sized(gzip.compress(body)), is_http=True),
            # Several requests at once, which are answered one after another.
            RawRequest((line + length + b"\r\n" + body) * 3, is_http=False),
        ]
        return rng.choice(framings)


def _sized(body: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n" % len(body) + body


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a JSON value where another could stand."""
    if not isinstance(value, dict | list):
        return []
    items = list(value.items() if isinstance(value, dict) else enumerate(value))
    return [place for key, inner in items for place in [(value, key), *places(inner)]]

"""Ask about images: any number, at any place of a message, kept by branches.

Run it: python examples/images.py [--url http://127.0.0.1:30000] [--model NAME] [--image FILE ...]

The server speaks OpenAI's API and has a model that looks at images.  Without an address a script answers, and the
program shows what would be sent.
"""

import argparse
import struct
import zlib
from typing import Any

from rich.console import Console

import sgl


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def square(red: int, green: int, blue: int) -> bytes:
    """A PNG file of 16 by 16 pixels of one color."""
    rows = (b"\0" + bytes([red, green, blue]) * 16) * 16
    header = struct.pack(">IIBBBBB", 16, 16, 8, 2, 0, 0, 0)
    parts = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(name, body) for name, body in parts)


@sgl.function
def compare(s, images):
    with s.user():
        for number, source in enumerate(images, 1):
            s += f"Image {number}: " + sgl.image(source) + "\n"
        # Every branch goes on with the images of the message that is still open.
        branches = s.fork(2)
    for branch, question in zip(branches, ("What differs?", "What is alike?"), strict=True):
        branch += question + sgl.user_end() + sgl.assistant(sgl.gen("answer", max_tokens=60))
    branches.join()


def run(console: Console, backend: Any, images: list[Any]) -> None:
    state = compare.run(images, backend=backend)
    for question, answer in zip(("differs", "is alike"), state["answer"], strict=True):
        console.print(f"What {question}: {answer.strip()}", markup=False, highlight=False)
    parts = state.messages()[0]["content"]
    shown = [part["image_url"]["url"][:30] if part["type"] == "image_url" else part["text"] for part in parts]
    console.print(f"The message: {shown}", markup=False, highlight=False)


def main() -> None:
    parser = argparse.ArgumentParser(description="Ask about images.")
    parser.add_argument("--url", help="address of a running server, without /v1; by default a script answers")
    parser.add_argument("--model", default="default", help="the server's name of its model")
    parser.add_argument("--image", action="append", help="a file or an address; two colored squares by default")
    options = parser.parse_args()
    images = options.image or [square(200, 30, 30), square(30, 30, 200)]
    if options.url:
        backend: Any = sgl.OpenAI(options.model, base_url=f"{options.url}/v1")
    else:
        backend = sgl.ScriptedBackend("One is red, the other blue.")
    run(Console(), backend, images)


if __name__ == "__main__":
    main()

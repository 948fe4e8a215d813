"""Images and videos of users, as the addresses or data URLs that requests carry."""

import base64
import io
import os
import struct
import zlib
from importlib import import_module
from pathlib import Path
from typing import IO, Any, Protocol, runtime_checkable

from sgl.errors import ArgumentError, SglError, reject
from sgl.ir import Media

MAX_FRAMES = 10_000
# The first bytes of the formats that vision models take.
SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF87a": "image/gif",
    b"GIF89a": "image/gif",
    b"RIFF": "image/webp",
    b"BM": "image/bmp",
}


@runtime_checkable
class SavableImage(Protocol):
    """An image of package pillow, as far as it is used here."""

    def save(self, fp: IO[bytes], format: str) -> None:  # noqa: A002 - pillow's word
        """Write it."""


def image_media(path_or_data: Any) -> Media:
    """The node of `image(path_or_data)`; files are read here.

    Raises:
        ArgumentError: it is no image, or the file cannot be read.
    """
    return Media("image", (_image_url(path_or_data),))


def video_media(path: Any, num_frames: Any) -> Media:
    """The node of `video(path, num_frames)`; frames are decoded here.

    Raises:
        ArgumentError: a value is wrong, or the file is no video that can be read.
        SglError: the package that decodes is not installed.
    """
    if not isinstance(path, str | os.PathLike):
        raise reject("path", path, "the path of a video file")
    if isinstance(num_frames, bool) or not isinstance(num_frames, int) or not 1 <= num_frames <= MAX_FRAMES:
        raise reject("num_frames", num_frames, f"an integer from 1 to {MAX_FRAMES}")
    if not Path(path).is_file():
        raise reject("path", path, "the path of a video file that exists")
    return Media("video", tuple(map(_data_url, _frames(Path(path), num_frames))))


def _image_url(source: Any) -> str:
    if isinstance(source, bytes | bytearray):
        return _data_url(bytes(source))
    if isinstance(source, str) and source.startswith(("http://", "https://", "data:image/")):
        return source
    if isinstance(source, str | os.PathLike):
        try:
            return _data_url(Path(source).read_bytes())
        except OSError as error:
            raise ArgumentError(f"image {str(source)!r} cannot be read: {error.strerror or error}") from error
    if isinstance(source, SavableImage):
        buffer = io.BytesIO()
        source.save(buffer, format="PNG")
        return _data_url(buffer.getvalue())
    raise reject("path_or_data", source, "a path, an http(s) or data address, bytes, or a pillow image")


def _data_url(data: bytes) -> str:
    kind = next((kind for signature, kind in SIGNATURES.items() if data.startswith(signature)), None)
    if kind is None:
        known = ", ".join(sorted({kind.removeprefix("image/") for kind in SIGNATURES.values()}))
        raise ArgumentError(f"image data begins with {data[:8]!r}; it must be one of the formats {known}")
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def _frames(path: Path, num_frames: int) -> list[bytes]:
    """Frames at equal distances, the first one included, as PNG files; all of them where there are no more."""
    try:
        av = import_module("av")
    except ModuleNotFoundError as error:
        raise SglError("videos are decoded by package 'av', which is not installed: pip install av") from error
    try:
        with av.open(str(path)) as container:
            total = sum(1 for _ in container.decode(video=0))
            container.seek(0)
            wanted = {index * total // num_frames for index in range(num_frames)}
            frames = enumerate(container.decode(video=0))
            pictures = [_png(frame.reformat(format="rgb24")) for index, frame in frames if index in wanted]
    except (av.FFmpegError, IndexError) as error:
        raise ArgumentError(f"video {str(path)!r} cannot be decoded: {error}") from error
    if not pictures:
        raise ArgumentError(f"video {str(path)!r} has no frames")
    return pictures


def _png(frame: Any) -> bytes:
    """A frame of three bytes for each pixel as a PNG file (RFC 2083)."""
    plane = frame.planes[0]
    data, row_size = bytes(plane), 3 * frame.width
    # A row begins with the number of its filter; rows of the frame may be padded.
    rows = b"".join(b"\0" + data[row * plane.line_size :][:row_size] for row in range(frame.height))
    header = struct.pack(">IIBBBBB", frame.width, frame.height, 8, 2, 0, 0, 0)
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body)) for name, body in chunks
    )

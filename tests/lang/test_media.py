"""Images and videos of programs, on the script and where they are refused."""

import base64
import io
import re
import struct
import sys
import zlib
from functools import partial
from types import SimpleNamespace

import pytest

import sgl

pytestmark = pytest.mark.timeout(20)

JPEG = b"\xff\xd8\xff\xe0 and so on"
URL = "http://localhost/cat.png"


def data_url(data, kind):
    return f"data:image/{kind};base64,{base64.b64encode(data).decode()}"


def test_the_script_gets_the_images_of_the_whole_prompt_in_order(tmp_path):
    path = tmp_path / "cat.jpg"
    path.write_bytes(JPEG)

    @sgl.function
    def program(s):
        s += sgl.user("See " + sgl.image(path) + " and " + sgl.image(URL))
        s += sgl.assistant(sgl.gen("x"))
        forks = s.fork(2)
        forks += lambda index: sgl.user(sgl.image(str(path)) + f" again {index}") + sgl.assistant(sgl.gen("y"))
        forks.join()
        s += sgl.user("text alone")
        s += sgl.assistant(sgl.gen("z"))

    backend = sgl.ScriptedBackend("a")
    state = program.run(backend=backend)
    assert "See <image> and <image><|end|>" in state.text()
    jpeg = data_url(JPEG, "jpeg")
    images = [call.payload.get("image_data") for call in backend.model.calls if call.sampling["max_new_tokens"]]
    assert images == [[jpeg, URL], [jpeg, URL, jpeg], [jpeg, URL, jpeg], [jpeg, URL]]


def test_a_model_of_text_alone_refuses_it_before_anything_is_sent():
    class TextModel:
        def __init__(self):
            self.model = sgl.ScriptedBackend().model

        async def call(self, path, payload):
            return await self.model.call(path, payload)

        def stream(self, path, payload):
            return self.model.stream(path, payload)

    @sgl.function
    def program(s):
        s += "text" + sgl.gen("a")
        s += sgl.image(URL)

    with pytest.raises(sgl.UnsupportedError, match="this backend does not support image: its model takes text alone"):
        program.run(backend=TextModel())


def test_choices_are_not_scored_behind_what_the_scores_would_leave_out():
    @sgl.function
    def program(s):
        s += "What is " + sgl.image(URL) + "? " + sgl.select("x", ["a", "b"])

    with pytest.raises(sgl.ProgramError, match="there is an image before this select"):
        program.run(backend=sgl.ScriptedBackend())["x"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (3, "path_or_data is 3; it must be a path"),
        ("no/such/file.png", r"image 'no/such/file\.png' cannot be read: No such file"),
        (b"plain text", "image data begins with b'plain te'; it must be one of the formats bmp, gif, jpeg, png, webp"),
        (b"", "image data begins with b''"),
    ],
)
def test_what_is_no_image_is_refused_where_it_is_built(source, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.image(source)


def test_an_image_object_is_written_as_png():
    class Picture:
        def save(self, fp, format):  # noqa: A002 - pillow's word
            assert format == "PNG"
            fp.write(b"\x89PNG\r\n\x1a\n...")

    assert sgl.image(Picture()).urls == (data_url(b"\x89PNG\r\n\x1a\n...", "png"),)


class FakeVideo:
    """Package av, as far as it is used: a file of frames of two by one pixels, with padded rows."""

    FFmpegError = type("FFmpegError", (Exception,), {})

    def __init__(self, num_frames):
        self.num_frames = num_frames

    def open(self, path):
        if path.endswith(".txt"):
            raise self.FFmpegError("Invalid data found")
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None

    def seek(self, offset):
        assert offset == 0

    def decode(self, video):
        for number in range(self.num_frames):
            yield SimpleNamespace(reformat=partial(reformatted, number))


def reformatted(number, **_):
    return Frame(number)


class Frame:
    width, height = 2, 1

    def __init__(self, number):
        self.planes = [Plane(bytes([number] * 6) + b"\xff\xff")]


class Plane(bytes):
    line_size = 8


def pixels(url):
    data = base64.b64decode(url.partition(",")[2])
    width, height = struct.unpack(">II", data[16:24])
    size = struct.unpack(">I", data[33:37])[0]
    return (width, height), zlib.decompress(data[41 : 41 + size])


def test_a_video_is_frames_at_equal_distances(monkeypatch, tmp_path):
    path = tmp_path / "a.mp4"
    path.write_bytes(b"film")
    monkeypatch.setitem(sys.modules, "av", FakeVideo(10))
    node = sgl.video(path, 4)
    assert (node.kind, len(node.urls)) == ("video", 4)
    assert [pixels(url) for url in node.urls] == [((2, 1), b"\0" + bytes([number] * 6)) for number in (0, 2, 5, 7)]
    assert len(sgl.video(str(path), 20).urls) == 10

    @sgl.function
    def program(s):
        s += "Film: " + sgl.video(path, 3) + sgl.gen("x")

    backend = sgl.ScriptedBackend("a")
    assert program.run(backend=backend).text() == "Film: <image><image><image>a"
    assert len(backend.model.calls[0].payload["image_data"]) == 3


def test_a_real_picture_library_reads_the_frames(monkeypatch, tmp_path):
    image_module = pytest.importorskip("PIL.Image")
    path = tmp_path / "a.mp4"
    path.write_bytes(b"film")
    monkeypatch.setitem(sys.modules, "av", FakeVideo(9))
    frame = image_module.open(io.BytesIO(base64.b64decode(sgl.video(path, 2).urls[1].partition(",")[2])))
    assert (frame.size, frame.getpixel((1, 0))) == ((2, 1), (4, 4, 4))
    assert sgl.image(frame).urls[0].startswith("data:image/png;base64,")


@pytest.mark.parametrize(
    ("path", "num_frames", "message"),
    [
        (b"data", 3, "path is b'data'; it must be the path of a video file"),
        ("no/such.mp4", 3, "path is 'no/such.mp4'; it must be the path of a video file that exists"),
        (__file__, 0, "num_frames is 0; it must be an integer from 1"),
        (__file__, True, "num_frames is True"),
    ],
)
def test_wrong_videos_are_refused_where_they_are_built(path, num_frames, message):
    with pytest.raises(sgl.ArgumentError, match=message):
        sgl.video(path, num_frames)


def test_videos_that_cannot_be_read_and_a_missing_decoder_are_named(monkeypatch, tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"film")
    monkeypatch.setitem(sys.modules, "av", FakeVideo(1))
    with pytest.raises(sgl.ArgumentError, match=rf"video '{re.escape(str(path))}' cannot be decoded: Invalid data"):
        sgl.video(path, 3)
    empty = tmp_path / "empty.mp4"
    empty.write_bytes(b"film")
    monkeypatch.setitem(sys.modules, "av", FakeVideo(0))
    with pytest.raises(sgl.ArgumentError, match="has no frames"):
        sgl.video(empty, 3)
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(sgl.SglError, match="decoded by package 'av', which is not installed: pip install av"):
        sgl.video(empty, 3)

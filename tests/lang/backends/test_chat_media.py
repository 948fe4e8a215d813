"""What chat endpoints take and give besides text: images in messages, thinking beside answers."""

import asyncio
import base64

import pytest

import sgl

pytestmark = pytest.mark.timeout(30)

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG_URL = "data:image/png;base64," + base64.b64encode(PNG).decode()
URL = "https://example.org/cat.jpg"


def text(value):
    return {"type": "text", "text": value}


def picture(url):
    return {"type": "image_url", "image_url": {"url": url}}


@sgl.function
def look(s):
    s += sgl.user("Compare " + sgl.image(PNG) + " with " + sgl.image(URL) + sgl.image(PNG) + ", please.")
    s += sgl.assistant(sgl.gen("x"))


@pytest.mark.parametrize("stream", [False, True])
def test_c20_any_number_of_images_stands_at_any_place_in_order(openai_stub, stream):
    with openai_stub(lambda body: "alike") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = look.run(backend=backend, stream=stream)
        assert state["x"] == "alike"
        content = server.requests[0][1]["messages"][0]["content"]
        backend.close()
    parts = [text("Compare "), picture(PNG_URL), text(" with "), picture(URL), picture(PNG_URL), text(", please.")]
    assert content == parts
    assert state.messages()[0] == {"role": "user", "content": parts}
    assert state.text() == "USER: Compare <image> with <image><image>, please.\nASSISTANT: alike\n"


def test_a6_branches_keep_the_images_of_an_open_message(openai_stub):
    @sgl.function
    def program(s):
        s += sgl.user_begin() + "What is this? " + sgl.image(URL)
        forks = s.fork(2)
        forks += lambda index: f" Say it in {index} words." + sgl.user_end() + sgl.assistant(sgl.gen("x"))
        with s.copy() as copy:
            copy += sgl.image(PNG) + sgl.user_end() + sgl.assistant(sgl.gen("y"))
        forks.join()

    with openai_stub(lambda body: str(len(body["messages"][0]["content"]))) as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = program.run(backend=backend)
        assert (state["x"], state["y"]) == (["3", "3"], ["3"])
        backend.close()


def test_joined_branches_bring_their_images(openai_stub):
    @sgl.function
    def program(s):
        with s.user():
            s += "Two images:"
            forks = s.fork(2)
            forks += lambda index: f" {index} " + sgl.image(PNG if index else URL)
            forks.join("concatenate")
            s += " Which?"
        s += sgl.assistant(sgl.gen("x"))
        s += sgl.user("and?") + sgl.assistant(sgl.gen("y"))

    parts = [text("Two images: 0 "), picture(URL), text(" 1 "), picture(PNG_URL), text(" Which?")]
    with openai_stub(lambda body: "both") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        program.run(backend=backend).sync()
        assert [body["messages"][0]["content"] for _, body, _ in server.requests] == [parts] * 2
        backend.close()


def test_a_dialogue_with_images_can_be_continued(openai_stub):
    @sgl.function
    def more(s):
        s += sgl.user("And now?") + sgl.assistant(sgl.gen("y"))

    with openai_stub(lambda body: "hm") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        messages = look.run(backend=backend).messages()
        assert more.run(messages=messages, backend=backend)["y"] == "hm"
        assert server.requests[1][1]["messages"][:2] == messages
        backend.close()


def test_images_in_the_wrong_place_are_errors_with_it(openai_stub):
    @sgl.function
    def outside(s):
        s += sgl.image(URL) + sgl.user("q") + sgl.assistant(sgl.gen("x"))

    @sgl.function
    def inside(s):
        s += sgl.user("q") + sgl.assistant(sgl.image(URL) + sgl.gen("x"))

    with openai_stub(lambda body: "hm") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        with pytest.raises(sgl.ProgramError, match="outside of roles, or an image"):
            outside.run(backend=backend)["x"]
        with pytest.raises(sgl.ProgramError, match="an image in the assistant's message before the gen"):
            inside.run(backend=backend)["x"]
        plain = sgl.OpenAI("m", False, base_url=server.url)
        with pytest.raises(
            sgl.UnsupportedError, match=r"completion model 'm' .*does not support image: its model takes"
        ):
            outside.run(backend=plain)
        assert server.requests == []
        backend.close()
        plain.close()


@sgl.function
def think(s, model_type=None):
    s += sgl.user("q") + sgl.assistant(sgl.separate_reasoning(sgl.gen("x"), model_type))
    s += sgl.user("r") + sgl.assistant(sgl.gen("y"))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("is_marked", [False, True])
def test_thinking_that_a_vendor_reports_is_told_apart(openai_stub, stream, is_marked):
    reply = "<think>\nlet me</think>\n\nseven" if is_marked else ("let me", "seven")
    with openai_stub(lambda body: reply if len(body["messages"]) == 1 else "eight") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = think.run("qwen3" if is_marked else None, backend=backend, stream=stream)
        thinking = "".join(state.text_iter("x_reasoning_content"))
        assert (state["x"], state["x_reasoning_content"], thinking, state["y"]) == (
            "seven",
            "let me",
            "let me",
            "eight",
        )
        assert "".join(state.text_iter()) == state.text()
        assert "<think>\nlet me</think>\n\nseven" in state.text()
        assert server.requests[1][1]["messages"][1] == {"role": "assistant", "content": "seven"}
        backend.close()


def test_a_chat_that_tells_nothing_apart_answers_without_thinking(openai_stub):
    async def read(state):
        return [piece async for piece in state.text_async_iter("x_reasoning_content")]

    with openai_stub(lambda body: "seven") as server:
        backend = sgl.OpenAI("m", base_url=server.url)
        state = think.run(backend=backend, stream=True)
        assert asyncio.run(read(state)) == []
        assert (state["x"], state["x_reasoning_content"]) == ("seven", "")
        backend.close()

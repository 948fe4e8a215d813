"""The playground in a real browser, on a scripted server."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import requests

from fakes.byte_tokenizer import ByteTokenizer
from fakes.chat_server import ChatServer
from fakes.scripted_server import ScriptedServer

OpenPage = Callable[..., Any]


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(request_history=20) as server:
        yield server


@pytest.fixture
def expect() -> Any:
    return pytest.importorskip("playwright.sync_api").expect


def ask(page: Any, text: str) -> None:
    page.get_by_label("Message", exact=True).fill(text)
    page.keyboard.press("Control+Enter")


def answers(page: Any) -> Any:
    return page.locator(".message.assistant")


def choose(page: Any, kind: str) -> None:
    page.locator(f"input[name=constraint-kind][value={kind}]").check(force=True)


def test_an_answer_streams_in_and_outlives_a_reload(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("Hello there, *friend*.")
    page = open_page(server)
    page.get_by_label("System prompt").fill("Be brief.")
    ask(page, "Hi <b>you</b>")
    expect(answers(page)).to_contain_text("Hello there, *friend*.")
    figures = page.locator(".figures")
    for text in ("23 tokens", "first after", "3 cached", "ended by itself"):
        expect(figures).to_contain_text(text)
    sent = server.template.rendered[-1][0]
    assert sent == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi <b>you</b>"}]
    page.reload()
    expect(answers(page)).to_contain_text("Hello there, *friend*.")
    expect(page.locator(".message.user")).to_contain_text("Hi <b>you</b>")
    expect(page.get_by_label("System prompt")).to_have_value("Be brief.")


def test_escape_stops_the_request_at_the_server(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.scheduler.hold_after = 4
    page = open_page(server)
    ask(page, "FOREVER")
    expect(answers(page)).to_contain_text("xxxx")
    assert len(server.scheduler.running) == 1
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.locator(".figures")).to_contain_text("stopped")
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert not server.scheduler.running


def test_an_answer_that_comes_is_not_ended_by_sending_or_answering(
    server: ChatServer, open_page: OpenPage, expect: Any
) -> None:
    server.scheduler.hold_after = 4
    page = open_page(server)
    ask(page, "FOREVER")
    expect(answers(page)).to_contain_text("xxxx")
    ask(page, "And then?")
    expect(page.locator(".notice")).to_contain_text("Escape stops it")
    for name in ("Answer again", "Regenerate"):
        page.get_by_role("button", name=name).click()
    expect(page.locator(".message")).to_have_count(2)
    expect(page.get_by_label("Message", exact=True)).to_have_value("And then?")
    assert len(server.scheduler.running) == 1
    page.locator(".message.assistant").get_by_role("button", name="Delete").click()
    expect(page.get_by_role("button", name="Send")).to_be_visible()
    assert not server.scheduler.running


def test_a_schema_is_checked_while_it_is_written(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server)
    choose(page, "json_schema")
    verdict, code = page.locator(".verdict"), page.locator(".code").first
    code.fill('{\n "type": "object",\n "properties": {\n  "a": {"type": "strin"}\n }\n}')
    expect(verdict).to_contain_text("#/properties/a/type is 'strin'")
    expect(page.locator(".gutter .marked")).to_have_text("4")
    expect(code).to_have_attribute("aria-invalid", "true")
    page.get_by_role("button", name="Line 4").click()
    expect(code).to_be_focused()
    assert (
        page.evaluate(
            "getSelection().toString() || document.activeElement.value.slice(document.activeElement.selectionStart, document.activeElement.selectionEnd)"
        )
        == '"strin"'
    )
    code.fill('{"type": "object", "properties": {"a": {"type": "string", "patern": "x"}}}')
    expect(verdict).to_contain_text("✓ valid · automaton")
    expect(verdict).to_contain_text("did you mean pattern?")
    expect(page.locator(".gutter .marked")).to_have_count(0)
    code.fill('{"type": ')
    expect(verdict).to_contain_text("no JSON yet")


@pytest.mark.slow
def test_other_constraints_are_checked_and_sent(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("yes")
    page = open_page(server)
    verdict, code = page.locator(".verdict"), page.locator(".code").first
    choose(page, "regex")
    code.fill("a(b")
    expect(verdict).to_contain_text("missing )")
    choose(page, "ebnf")
    code.fill("root ::= x")
    expect(verdict).to_contain_text("Rule 'x' not found")
    choose(page, "choices")
    code.fill("yes\nno")
    expect(verdict).to_contain_text("✓ valid")
    ask(page, "well?")
    expect(answers(page)).to_contain_text("yes")
    assert server.scheduler.requests[-1].sampling.choices == ("yes", "no")
    # Each kind keeps its own text.
    choose(page, "regex")
    expect(code).to_have_value("a(b")


def test_probabilities_open_by_keyboard(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("abc")
    page = open_page(server)
    ask(page, "go")
    tokens = page.locator(".token-text .token")
    expect(tokens).to_have_count(4)
    expect(tokens.first).to_have_attribute("aria-label", "a, 60.7 %")
    expect(tokens.first).to_have_class(re.compile("shade-2"))
    expect(tokens.nth(3)).to_have_class(re.compile("cut"))
    tokens.first.focus()
    page.keyboard.press("Enter")
    card = page.locator(".token-card")
    expect(card).to_contain_text("Came with 60.7 %")
    expect(card.locator("li")).to_have_count(5)
    expect(card.locator("li code")).to_have_text(["a", "b", "c", "d", "e"])
    page.keyboard.press("ArrowRight")
    expect(tokens.nth(1)).to_be_focused()
    expect(card.locator("li.chosen code")).to_have_text("b")
    page.keyboard.press("Escape")
    expect(card).to_have_count(0)


@pytest.mark.slow
def test_choices_stand_side_by_side_and_one_goes_on(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say(lambda message: f"answer {message.rid[-2:]}")
    page = open_page(server)
    page.get_by_label("Choices", exact=True).and_(page.locator("input[type=number]")).fill("2")
    ask(page, "first")
    columns = page.locator(".column")
    expect(columns).to_have_count(2)
    expect(columns.nth(1)).to_contain_text("answer -1")
    columns.nth(1).get_by_role("button", name="Go on from this one").click()
    expect(columns.nth(1).get_by_role("button", name="Goes on from here")).to_be_focused()
    ask(page, "second")
    expect(page.locator(".message")).to_have_count(4)
    expect(answers(page).nth(1)).to_contain_text("ended by itself")
    assert server.template.rendered[-1][0][1]["content"] == "answer -1"


@pytest.mark.slow
def test_messages_are_edited_regenerated_and_deleted(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("one")
    page = open_page(server)
    ask(page, "question")
    expect(answers(page)).to_contain_text("one")
    user = page.locator(".message.user")
    user.get_by_role("button", name="Edit").click()
    field = user.get_by_label("Text of the message")
    expect(field).to_be_focused()
    field.fill("better question")
    page.keyboard.press("Control+Enter")
    expect(user).to_contain_text("better question")
    server.say("two")
    page.get_by_role("button", name="Regenerate").click()
    expect(answers(page)).to_contain_text("two")
    assert server.template.rendered[-1][0] == [{"role": "user", "content": "better question"}]
    expect(page.locator(".pager")).to_contain_text("2 of 2")
    page.get_by_role("button", name="Earlier answer").click()
    expect(answers(page)).to_contain_text("one")
    answers(page).get_by_role("button", name="Delete").click()
    expect(answers(page)).to_have_count(0)
    expect(user.get_by_role("button", name="Answer again")).to_be_focused()


@pytest.mark.slow
def test_a_completion_goes_on_from_its_own_answer(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say(" time")
    page = open_page(server)
    page.locator("input[value=completion]").check(force=True)
    prompt = page.get_by_label("Prompt", exact=True)
    prompt.fill("Once upon a")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".answer")).to_contain_text(" time")
    page.get_by_role("button", name="Add the answer to the prompt").click()
    expect(prompt).to_have_value("Once upon a time")
    expect(page.locator(".answer")).to_have_count(0)


@pytest.mark.slow
def test_errors_are_shown_whole_and_at_their_field(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server, allowed_errors=("status of 400",))
    temperature = page.get_by_label("Temperature")
    temperature.fill("-3")
    ask(page, "hi")
    message = "temperature is -3; it must be a number from 0 to 100"
    problem = page.locator(".problem")
    expect(problem).to_contain_text("The server refused the request")
    expect(problem).to_contain_text(message)
    expect(problem).to_contain_text("status 400 · invalid_request · field temperature · request ")
    expect(temperature).to_have_attribute("aria-invalid", "true")
    expect(page.locator(".setting-grid .wrong").first).to_have_text(message)
    server.say("fine")
    temperature.fill("0.5")
    page.get_by_role("button", name="Try again").click()
    expect(answers(page)).to_contain_text("fine")


def test_what_was_not_said_is_not_sent(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server, allowed_errors=("status of 400",))
    page.locator("summary", has_text="Tools").click()
    tools = page.get_by_label("Tools as JSON")
    tools.fill("[{]")
    ask(page, "hi")
    expect(page.locator(".notice")).to_contain_text("The tools are no JSON")
    expect(page.locator(".message")).to_have_count(0)
    expect(page.get_by_label("Message", exact=True)).to_have_value("hi")
    tools.fill("")
    page.get_by_label("Temperature").fill("-3")
    page.get_by_role("button", name="Send").click()
    expect(page.locator(".problem")).to_contain_text("temperature is -3")
    page.get_by_label("Temperature").fill("0.5")
    server.say("fine")
    ask(page, "again")
    expect(answers(page).last).to_contain_text("fine")
    assert [message["role"] for message in server.template.rendered[-1][0]] == ["user", "user"]


@pytest.fixture
def tool_server() -> Iterator[ChatServer]:
    with ChatServer(tool_call_parser="hermes") as server:
        yield server


@pytest.mark.slow
def test_tools_are_sent_and_calls_shown(tool_server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server = tool_server
    server.say('<tool_call>\n{"name": "get_weather", "arguments": {"city": "Paris"}}\n</tool_call>')
    page = open_page(server)
    page.locator("summary", has_text="Tools").click()
    page.get_by_role("button", name="Example").click()
    ask(page, "weather?")
    call = page.locator(".call")
    expect(call).to_contain_text("get_weather")
    expect(call).to_contain_text('"city": "Paris"')
    call.get_by_role("button", name="Add a result").click()
    tool = page.locator(".message.tool")
    tool.get_by_label("Text of the message").fill("sunny")
    page.keyboard.press("Control+Enter")
    server.say("It is sunny.")
    page.get_by_role("button", name="Send").click()
    expect(answers(page).nth(1)).to_contain_text("It is sunny.")
    sent = server.template.rendered[-1][0]
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["tool_call_id"] == sent[1]["tool_calls"][0]["id"]


@pytest.mark.slow
def test_conversations_are_exported_and_imported(
    server: ChatServer, open_page: OpenPage, expect: Any, tmp_path: Path
) -> None:
    server.say("kept")
    page = open_page(server)
    ask(page, "keep this")
    expect(answers(page)).to_contain_text("ended by itself")
    with page.expect_download() as download:
        page.get_by_role("button", name="Export").click()
    path = tmp_path / "playground.json"
    download.value.save_as(path)
    assert json.loads(path.read_text())["messages"][0]["content"] == "keep this"
    page.get_by_role("button", name="New", exact=True).click()
    expect(page.locator(".message")).to_have_count(0)
    file = page.locator("input[type=file]")
    file.set_input_files({"name": "x.json", "mimeType": "application/json", "buffer": b'{"version": 1, "messages": 3}'})
    expect(page.locator(".notice").last).to_contain_text("holds no playground")
    strange = {
        "version": 1,
        "messages": [None, {"role": 5, "runs": [{"answers": [3, {"tokens": [1]}]}]}],
        "sampling": [],
    }
    file.set_input_files({"name": "x.json", "mimeType": "application/json", "buffer": json.dumps(strange).encode()})
    expect(page.locator(".message")).to_have_count(1)
    file.set_input_files(path)
    expect(answers(page)).to_contain_text("kept")


@pytest.mark.slow
def test_requests_are_shown_as_programs_that_run(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("ok")
    page = open_page(server)
    choose(page, "regex")
    page.locator(".code").first.fill(r"o\w")
    page.get_by_label("Seed").fill("7")
    ask(page, 'it\'s "quoted"')
    expect(answers(page)).to_contain_text("ended by itself")
    page.get_by_role("button", name="Code").click()
    code = page.locator("dialog pre")
    expect(code).to_contain_text("curl http://127.0.0.1:")
    page.get_by_label("Python (openai)").check(force=True)
    expect(code).to_contain_text("extra_body=")
    namespace: dict[str, Any] = {}
    exec(code.inner_text(), namespace)
    sampling = server.scheduler.requests[-1].sampling
    assert (sampling.regex, sampling.sampling_seed, sampling.max_new_tokens) == (r"o\w", 7, 256)
    assert server.template.rendered[-1][0][0] == {"role": "user", "content": 'it\'s "quoted"'}
    page.get_by_label("sgl program").check(force=True)
    expect(code).to_contain_text('sgl.gen("answer", max_tokens=256, seed=7, regex="o\\\\w")')
    compile(code.inner_text(), "program", "exec")


@pytest.mark.slow
def test_a_key_is_asked_for_and_kept_in_the_tab(open_page: OpenPage, expect: Any) -> None:
    with ChatServer(api_key=("secret",)) as server:
        server.say("hello")
        page = open_page(server, allowed_errors=("status of 401",))
        key = page.get_by_label("API key")
        expect(key).to_be_focused()
        key.fill("wrong")
        page.keyboard.press("Enter")
        expect(page.locator("dialog")).to_contain_text("the key is wrong")
        page.get_by_label("API key").fill("secret")
        page.keyboard.press("Enter")
        ask(page, "hi")
        expect(answers(page)).to_contain_text("hello")
        page.reload()
        expect(answers(page)).to_contain_text("hello")
        assert page.evaluate("Object.values(localStorage).join()").count("secret") == 0


@pytest.mark.slow
def test_models_without_a_template_complete(open_page: OpenPage, expect: Any) -> None:
    server = ScriptedServer()
    server.tokenizer = ByteTokenizer(with_template=False)
    with server:
        page = open_page(server)
        expect(page.get_by_label("Prompt", exact=True)).to_be_visible()
        page.locator("input[value=chat]").check(force=True)
        expect(page.locator(".warning")).to_contain_text("no chat template")


@pytest.mark.slow
def test_models_of_vectors_rank_texts(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    model = requests.get(server.url + "/get_model_info", timeout=20).json()
    model |= {"is_generation": False, "pooling": {"labels": None}}
    ranks = [{"index": 1, "relevance_score": 0.91}, {"index": 0, "relevance_score": 0.12}]
    page = open_page(server)
    page.route("**/get_model_info", lambda route: route.fulfill(json=model))
    page.route("**/v1/rerank", lambda route: route.fulfill(json={"results": ranks}))
    page.reload()
    page.get_by_label("Texts").fill("far\nnear")
    page.get_by_role("button", name="Rank").click()
    expect(page.locator("tbody tr")).to_have_text(["near0.91", "far0.12"])

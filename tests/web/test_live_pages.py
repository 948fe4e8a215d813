"""The live view, the inspector and what all views share, in a real browser on a scripted server."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from fakes.chat_server import ChatServer

OpenPage = Callable[..., Any]

# For each text that is seen: its colour and that of what lies behind it, and the contrast of WCAG 2.
LOW_CONTRAST = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? []).map(Number);
  const over = (top, below) => {
    const alpha = top[3] ?? 1;
    return [0, 1, 2].map((i) => top[i] * alpha + below[i] * (1 - alpha));
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !node.checkVisibility() || node.closest(".only-heard, .skip, :disabled, noscript")) continue;
    const style = getComputedStyle(node);
    let opacity = 1;
    for (let at = node; at; at = at.parentElement) opacity *= Number(getComputedStyle(at).opacity);
    const ground = behind(node);
    const ink = parse(node instanceof SVGElement ? style.fill : style.color);
    const text = over([...ink.slice(0, 3), (ink[3] ?? 1) * opacity], ground);
    const [high, low] = [luminance(text), luminance(ground)].sort((a, b) => b - a);
    const ratio = (high + 0.05) / (low + 0.05);
    if (ratio < 4.5) found.push(`${ratio.toFixed(2)} ${node.className.baseVal ?? node.className} ${walker.currentNode.data.trim().slice(0, 30)}`);
  }
  return found;
}"""


@pytest.fixture(scope="module")
def server() -> Iterator[ChatServer]:
    with ChatServer(request_history=20) as server:
        yield server


@pytest.fixture
def expect() -> Any:
    return pytest.importorskip("playwright.sync_api").expect


def generate(server: ChatServer, text: str, **fields: Any) -> None:
    requests.post(server.url + "/generate", json={"text": text, **fields}, timeout=20).raise_for_status()


def tile(page: Any, name: str) -> Any:
    return page.locator(".tile", has_text=name).locator("dd")


def test_live_numbers_move(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.scheduler.hold_after = 2
    page = open_page(server, "/#live")
    expect(tile(page, "Running")).to_have_text("0")
    expect(page.locator("#pulse")).to_have_text("idle")
    body = {"text": "FOREVER", "stream": True, "rid": "long"}
    with requests.post(server.url + "/generate", json=body, stream=True, timeout=20) as stream:
        expect(tile(page, "Running")).to_have_text("1")
        expect(page.locator("#pulse")).to_have_text("1 request")
        expect(tile(page, "Tokens/s")).not_to_have_text("0")
        expect(tile(page, "Cache hits")).not_to_have_text("–")
        requests.post(server.url + "/abort_request", json={"rid": "long"}, timeout=20)
        stream.close()
    expect(tile(page, "Running")).to_have_text("0")
    chart = page.get_by_role("img", name=re.compile("^Requests, last five minutes. Now: running 0"))
    expect(chart).to_have_attribute("aria-label", re.compile("Highest: 1"))
    chart.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".when").first).to_contain_text("s ago")


@pytest.mark.slow
def test_facts_and_configuration_can_be_searched(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server, "/#live")
    expect(page.locator(".facts", has_text="Model").first).to_contain_text("8,000 tokens")
    page.get_by_label("Search the configuration").fill("request-history")
    rows = page.locator(".config tbody tr:visible")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("20")


@pytest.mark.slow
def test_polling_stops_while_the_page_is_hidden(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server, "/#live")
    expect(page.locator("#pulse")).to_have_text("idle")
    page.evaluate("""() => {
      Object.defineProperty(document, "hidden", {get: () => true, configurable: true});
      document.dispatchEvent(new Event("visibilitychange"));
    }""")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(1500)
    assert asked == []
    with page.expect_request("**/live_stats"):
        page.evaluate("""() => {
          delete document.hidden;
          document.dispatchEvent(new Event("visibilitychange"));
        }""")


def test_inspector_shows_what_the_model_saw_and_what_was_forced(
    server: ChatServer, open_page: OpenPage, expect: Any
) -> None:
    server.say('{"a":1}')
    page = open_page(server)
    page.locator("input[name=constraint-kind][value=regex]").check(force=True)
    page.locator(".code").first.fill(".*")
    page.get_by_label("Message", exact=True).fill("say it")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".token.forced")).to_have_text(["{", '"', '"', ":", "}"])
    page.get_by_role("button", name="Inspect").click()
    expect(page).to_have_url(re.compile("#inspector/web-"))
    strips = page.locator(".strip")
    expect(strips.first).to_contain_text("say it")
    expect(strips.first.locator(".piece.cached")).to_have_count(3)
    expect(strips.first.locator(".piece.special").first).to_have_text("<turn>")
    expect(strips.nth(1).locator(".piece.forced")).to_have_text(["{", '"', '"', ":", "}"])
    expect(page.locator(".time-legend")).to_contain_text("output")
    expect(page.locator(".part", has_text="Constraint").last).to_contain_text("enforced by fsm")
    expect(page.locator(".entry[aria-current]")).to_contain_text("/v1/chat/completions")
    strips.nth(1).locator(".piece").first.focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".told").nth(1)).to_contain_text("token 1 · id 34 · forced by the grammar")


@pytest.mark.slow
def test_inspector_lists_requests_of_others_and_says_when_it_keeps_none(
    server: ChatServer, open_page: OpenPage, expect: Any
) -> None:
    server.say("abc")
    generate(server, "first", rid="theirs")
    page = open_page(server, "/#inspector")
    expect(page.locator(".list-side")).to_contain_text("The latest 20 requests")
    entry = page.locator(".entry[data-rid=theirs]")
    entry.focus()
    page.keyboard.press("Enter")
    expect(page.locator(".detail .rid")).to_have_text("theirs")
    generate(server, "second", rid="next")
    expect(page.locator(".entry").first).to_have_attribute("data-rid", "next")
    with ChatServer() as other:
        page = open_page(other, "/#inspector")
        expect(page.locator(".list-side")).to_contain_text("Start the server with --request-history N")


def test_all_is_reached_by_keyboard(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server)
    expect(page.locator("#tab-playground")).to_have_attribute("aria-selected", "true")
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
    page.keyboard.press("Tab")
    expect(page.locator("#tab-playground")).to_be_focused()
    page.keyboard.press("ArrowRight")
    expect(page.locator("#tab-live")).to_be_focused()
    expect(page.locator("#view-live")).to_be_visible()
    page.keyboard.press("Alt+3")
    expect(page.locator("#view-inspector")).to_be_visible()
    page.keyboard.press("?")
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Ctrl + Enter")
    page.keyboard.press("Escape")
    expect(dialog).to_have_count(0)
    page.keyboard.press("/")
    expect(page.get_by_label("Message", exact=True)).to_be_focused()
    page.keyboard.type("? is no shortcut here")
    expect(page.get_by_label("Message", exact=True)).to_have_value("? is no shortcut here")


def fill_views(page: Any, expect: Any) -> None:
    page.get_by_label("Message", exact=True).fill("hi")
    page.keyboard.press("Control+Enter")
    expect(page.locator(".figures").last).to_contain_text("ended by itself")


@pytest.mark.slow
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_in_both_themes(theme: str, server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say('{"a": "b"}')
    page = open_page(server, color_scheme=theme, reduced_motion="reduce")
    page.locator("input[name=constraint-kind][value=regex]").check(force=True)
    page.locator(".code").first.fill("(")
    expect(page.locator(".verdict .wrong")).to_be_visible()
    page.locator(".code").first.fill(".*")
    expect(page.locator(".verdict .right")).to_be_visible()
    fill_views(page, expect)
    assert page.evaluate(LOW_CONTRAST) == []
    page.keyboard.press("Alt+2")
    expect(page.locator(".config tbody tr").first).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []
    page.keyboard.press("Alt+3")
    page.locator(".entry").first.click()
    expect(page.locator(".piece.forced").first).to_be_visible()
    assert page.evaluate(LOW_CONTRAST) == []


def test_theme_follows_the_system_until_one_is_chosen(server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    page = open_page(server, color_scheme="dark")
    body = page.locator("body")
    expect(body).to_have_css("background-color", "rgb(15, 20, 23)")
    button = page.get_by_role("button", name="Theme: as the system")
    button.click()
    expect(body).to_have_css("background-color", "rgb(246, 247, 246)")
    page.reload()
    expect(body).to_have_css("background-color", "rgb(246, 247, 246)")
    expect(page.get_by_role("button", name="Theme: light")).to_be_visible()


@pytest.mark.slow
@pytest.mark.parametrize("width", [360, 768, 1920])
def test_nothing_is_wider_than_the_screen(width: int, server: ChatServer, open_page: OpenPage, expect: Any) -> None:
    server.say("a long answer " * 3 + "x" * 160)
    page = open_page(server, viewport={"width": width, "height": 700})
    fill_views(page, expect)
    if width < 960:
        page.get_by_role("button", name="Settings").click()
        expect(page.get_by_label("Temperature")).to_be_visible()
        page.get_by_role("button", name="Settings").click()
    for view in ("playground", "live", "inspector"):
        page.locator(f"#tab-{view}").click()
        expect(page.locator(f"#view-{view}")).to_be_visible()
        if view == "inspector":
            page.locator(".entry").first.click()
            expect(page.locator(".strip").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
        assert (
            page.evaluate(
                f"(() => {{ const v = document.getElementById('view-{view}'); return v.scrollWidth - v.clientWidth; }})()"
            )
            <= 0
        )


@pytest.mark.slow
def test_places_quantiles_and_programs_are_right(server: ChatServer, open_page: OpenPage) -> None:
    page = open_page(server)

    def call(module: str, name: str, *arguments: Any) -> Any:
        script = f"async (given) => (await import('/web/{module}')).{name}(...given)"
        return page.evaluate(script, list(arguments))

    text = '{ "a/b": [1, {"c": "x\\"}"}], "~": {"d": null} }'
    for pointer, found in (
        ("#", text),
        ("#/a~1b", '[1, {"c": "x\\"}"}]'),
        ("#/a~1b/1/c", '"x\\"}"'),
        ("#/~0/d", "null"),
        ("#/a~1b/7", '[1, {"c": "x\\"}"}]'),
    ):
        begin, end = call("playground/json_places.js", "rangeOf", text, pointer)
        assert text[begin:end] == found, pointer
    assert call("live/series.js", "quantile", [1, 2, 4], [0, 10, 10, 10], 0.5) == 1.5
    assert call("live/series.js", "quantile", [1, 2, 4], [0, 0, 0, 5], 0.5) == 4
    assert call("live/series.js", "quantile", [1, 2, 4], [0, 0, 0, 0], 0.5) is None
    assert call("live/chart.js", "niceTop", 37) == 40
    value = {"a": [True, None, 1.5, "\u2028'\"\\\n"], "b" * 90: {}}
    assert eval(call("playground/snippets.js", "python", value)) == value


@pytest.mark.slow
def test_a_server_that_goes_away_is_told_and_found_again(open_page: OpenPage, expect: Any) -> None:
    with ChatServer() as server:
        page = open_page(server, "/#live", allowed_errors=("Failed to load resource",))
        expect(page.locator("#pulse")).to_have_text("idle")
    expect(page.locator("#pulse")).to_have_text("no answer")
    expect(page.locator(".server-state")).to_contain_text("The server does not answer")

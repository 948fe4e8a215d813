"""A browser for the tests of the web page; they are skipped where there is none."""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from fakes.scripted_server import ScriptedServer

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome")

OpenPage = Callable[..., Any]


# While it runs, its event loop counts as the one of this thread: it must not outlive the module.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs package playwright")
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip(f"needs a browser: one of {', '.join(NAMES)}")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@contextmanager
def watched_page(
    browser: Any, server: ScriptedServer, *, allowed_errors: tuple[str, ...] = (), **options: Any
) -> Iterator[Any]:
    """A page in which nothing goes wrong unseen, and which talks to its own server alone."""
    context = browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
    context.set_default_timeout(10_000)
    page = context.new_page()
    errors: list[str] = []
    elsewhere: list[str] = []
    page.on("console", lambda message: errors.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: errors.append(str(error)))
    own = (server.url, "blob:", "data:")
    page.on("request", lambda request: None if request.url.startswith(own) else elsewhere.append(request.url))
    try:
        yield page
    finally:
        context.close()
    assert elsewhere == []
    assert [error for error in errors if not any(allowed in error for allowed in allowed_errors)] == []


@pytest.fixture
def open_page(browser: Any) -> Iterator[OpenPage]:
    """Opens pages of servers; at the end of the test they are closed, and what they did is looked at."""
    managers = []

    def open_at(server: ScriptedServer, path: str = "/", **options: Any) -> Any:
        manager = watched_page(browser, server, **options)
        page = manager.__enter__()
        managers.append(manager)
        page.goto(server.url + path)
        return page

    yield open_at
    for manager in reversed(managers):
        manager.__exit__(None, None, None)

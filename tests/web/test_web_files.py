"""The files of the web page over HTTP: headers, caching, access, and that the page may be switched off."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

import sgl_runtime.server
from fakes.scripted_server import ScriptedServer

WEB = Path(sgl_runtime.server.__file__).parent / "web"
FILES = sorted(path.relative_to(WEB).as_posix() for path in WEB.rglob("*") if path.suffix in (".js", ".css", ".svg"))


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer(api_key=("secret",)) as server:
        yield server


def test_page_is_open_and_may_load_nothing_from_elsewhere(server: ScriptedServer) -> None:
    response = requests.get(server.url + "/", timeout=10)
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/html; charset=utf-8"
    policy = response.headers["content-security-policy"]
    assert policy.startswith("default-src 'self';")
    assert "unsafe" not in policy
    assert response.headers["x-content-type-options"] == "nosniff"
    assert requests.head(server.url + "/", timeout=10).status_code == 200


def test_data_need_the_key(server: ScriptedServer) -> None:
    for path in ("/get_model_info", "/live_stats"):
        assert requests.get(server.url + path, timeout=10).status_code == 401
        key = {"authorization": "Bearer secret"}
        assert requests.get(server.url + path, headers=key, timeout=10).status_code == 200
    for path in ("/validate_grammar", "/request_history", "/inspect_request"):
        assert requests.post(server.url + path, json={}, timeout=10).status_code == 401


def test_every_file_is_served_with_its_type_and_known_again(server: ScriptedServer) -> None:
    types = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}
    assert len(FILES) > 30
    with requests.Session() as session:
        for name in FILES:
            response = session.get(f"{server.url}/web/{name}", timeout=10)
            assert response.status_code == 200, name
            assert response.headers["content-type"].startswith(types[Path(name).suffix]), name
            assert response.content == (WEB / name).read_bytes(), name
        again = session.get(f"{server.url}/web/app.js", headers={"if-none-match": response.headers["etag"]}, timeout=10)
        assert again.status_code == 200
        same = session.get(f"{server.url}/web/app.js", headers={"if-none-match": again.headers["etag"]}, timeout=10)
        assert (same.status_code, same.content) == (304, b"")


@pytest.mark.parametrize("path", ["/web/nothing.js", "/web/../app.py", "/web/%2e%2e/app.py", "/web/"])
def test_other_files_are_not_there(path: str, server: ScriptedServer) -> None:
    key = {"authorization": "Bearer secret"}
    response = requests.get(server.url + path, headers=key, timeout=10)
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


def test_page_can_be_switched_off() -> None:
    with ScriptedServer(disable_web=True) as server:
        for path in ("/", "/web/app.js"):
            response = requests.get(server.url + path, timeout=10)
            assert response.status_code == 404
            assert response.json()["error"]["code"] == "not_found"


def test_files_name_no_other_host_and_stay_short() -> None:
    for name in [*FILES, "index.html"]:
        text = (WEB / name).read_text(encoding="utf-8")
        hosts = re.findall(r"https?://[^\s\"'`)]+", text)
        assert set(hosts) <= {"http://www.w3.org/2000/svg"}, name
        assert text.count("\n") < 400, name


def test_every_import_names_a_file() -> None:
    for name in FILES:
        if not name.endswith(".js"):
            continue
        text = (WEB / name).read_text(encoding="utf-8")
        for target in re.findall(r'^(?:import|export) .*?from "(.*?)";', text, re.MULTILINE):
            assert (WEB / name).parent.joinpath(target).resolve().is_file(), f"{name} imports {target}"

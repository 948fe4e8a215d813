"""Keys, CORS, TLS, Unix sockets, and what a request may take."""

import json
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import requests

from fakes.scripted_server import ScriptedServer
from sgl_runtime.config_flags import build_config
from sgl_runtime.config_serving import AccessConfig
from sgl_runtime.errors import ConfigError
from sgl_runtime.server.tls import tls_context

SAY = {"text": "say:a"}


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


@pytest.fixture(scope="module")
def guarded() -> Iterator[ScriptedServer]:
    with ScriptedServer(api_key=["first", "second"], admin_api_key="boss") as server:
        yield server


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        (bearer("wrong"), 401),
        (bearer("firs"), 401),
        (bearer(""), 401),
        ({"authorization": "Basic first"}, 401),
        ({"authorization": b"Bearer \xff\xfe"}, 401),
        (bearer("first"), 200),
        ({"authorization": "bearer  second"}, 200),
        ({"x-api-key": "second"}, 200),
        (bearer("boss"), 200),
    ],
)
def test_requests_need_a_key(guarded: ScriptedServer, headers: dict[str, Any], status: int) -> None:
    reply = requests.post(guarded.url + "/generate", json=SAY, headers=headers, timeout=20)
    assert reply.status_code == status
    if status == 401:
        assert reply.headers["www-authenticate"] == "Bearer"
        assert reply.json()["error"]["code"] == "invalid_api_key"


@pytest.mark.parametrize(("key", "status"), [("first", 401), ("boss", 200)])
def test_paths_of_the_whole_server_need_the_admin_key(guarded: ScriptedServer, key: str, status: int) -> None:
    for path in ("/flush_cache", "/pause_generation", "/configure_logging", "/start_profile"):
        reply = requests.post(guarded.url + path, json={}, headers=bearer(key), timeout=20)
        assert (reply.status_code == 401) == (status == 401), (path, reply.text)


def test_probes_are_open_and_closable(guarded: ScriptedServer) -> None:
    probes = ("/health", "/ping", "/ready", "/metrics")
    assert {requests.get(guarded.url + path, timeout=20).status_code for path in probes} == {200}
    assert requests.get(guarded.url + "/get_server_info", timeout=20).status_code == 401
    with ScriptedServer(api_key="k", api_key_for_probes=True) as closed:
        assert {requests.get(closed.url + path, timeout=20).status_code for path in probes} == {401}
        assert requests.get(closed.url + "/metrics", headers=bearer("k"), timeout=20).status_code == 200
        # Without a key of their own, paths of the whole server take the api key.
        assert requests.post(closed.url + "/flush_cache", json={}, headers=bearer("k"), timeout=20).ok


def test_an_admin_key_alone_guards_only_the_whole_server() -> None:
    with ScriptedServer(admin_api_key="boss") as server:
        assert requests.post(server.url + "/generate", json=SAY, timeout=20).ok
        assert requests.post(server.url + "/flush_cache", json={}, timeout=20).status_code == 401


def test_keys_are_shown_nowhere(guarded: ScriptedServer) -> None:
    info = requests.get(guarded.url + "/get_server_info", headers=bearer("first"), timeout=20)
    assert info.json()["api_key"] == info.json()["admin_api_key"] == "***"
    assert not {"first", "second", "boss"} & set(info.text.replace('"', " ").split())


def test_an_unauthorized_anthropic_request_gets_anthropics_envelope(guarded: ScriptedServer) -> None:
    reply = requests.post(guarded.url + "/v1/messages", json={}, timeout=20)
    assert reply.status_code == 401
    assert reply.json()["type"] == "error"
    assert reply.json()["error"]["type"] == "authentication_error"


def test_pages_of_allowed_origins_may_call() -> None:
    origin = "https://page.example"
    asks = {
        "origin": origin,
        "access-control-request-method": "POST",
        "access-control-request-headers": "authorization",
    }
    with ScriptedServer(allowed_origins=[origin], api_key="k") as server:
        preflight = requests.options(server.url + "/generate", headers=asks, timeout=20)
        assert preflight.headers["access-control-allow-origin"] == origin
        reply = requests.post(server.url + "/generate", json=SAY, headers={"origin": origin, **bearer("k")}, timeout=20)
        assert reply.headers["access-control-allow-origin"] == origin
        # A refusal can be read by the page too.
        refused = requests.post(server.url + "/generate", json=SAY, headers={"origin": origin}, timeout=20)
        assert (refused.status_code, refused.headers["access-control-allow-origin"]) == (401, origin)
        other = requests.post(
            server.url + "/generate", json=SAY, headers={"origin": "https://x", **bearer("k")}, timeout=20
        )
        assert "access-control-allow-origin" not in other.headers


def test_without_allowed_origins_no_page_may_call() -> None:
    with ScriptedServer() as server:
        reply = requests.post(server.url + "/generate", json=SAY, headers={"origin": "https://x"}, timeout=20)
        assert "access-control-allow-origin" not in reply.headers


def test_bodies_past_the_limit_are_refused_with_the_limit() -> None:
    with ScriptedServer(max_request_bytes=1000) as server, requests.Session() as session:
        told = session.post(server.url + "/generate", json={"text": "a" * 2000}, timeout=20)
        assert told.status_code == 413
        assert "more than 1000 bytes" in told.json()["error"]["message"]
        assert told.json()["error"]["code"] == "request_too_large"
        # Without a length, as it comes.
        pieces = (b'{"text": "' if number == 0 else b"a" * 500 for number in range(5))
        piecewise = session.post(server.url + "/generate", data=pieces, timeout=20)
        assert piecewise.status_code == 413
        assert session.post(server.url + "/v1/messages", json={"a": "a" * 2000}, timeout=20).json()["error"] == {
            "type": "request_too_large",
            "message": "the body has more than 1000 bytes, the limit of this server",
        }
        # The connection goes on.
        assert session.post(server.url + "/generate", json=SAY, timeout=20).json()["text"] == "a"


def test_a_root_path_is_taken_off() -> None:
    with ScriptedServer(root_path="/llm") as server:
        assert requests.post(server.url + "/generate", json=SAY, timeout=20).json()["text"] == "a"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tls")
    command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-days", "2"]
    command += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    for name, more in (("server", ["-nodes"]), ("client", ["-nodes"]), ("locked", ["-passout", "pass:secret"])):
        files = ["-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")]
        subprocess.run([*command, *more, *files], check=True, capture_output=True, timeout=60)
    return folder


def test_tls(certificates: Path) -> None:
    key, certificate = str(certificates / "server.key"), str(certificates / "server.crt")
    with ScriptedServer(ssl_keyfile=key, ssl_certfile=certificate) as server:
        url = server.url.replace("http:", "https:")
        assert requests.post(url + "/generate", json=SAY, verify=certificate, timeout=20).json()["text"] == "a"
        with pytest.raises(requests.RequestException):
            requests.get(server.url + "/health", timeout=20)


def test_clients_must_bring_a_certificate_where_authorities_are_named(certificates: Path) -> None:
    key, certificate = str(certificates / "server.key"), str(certificates / "server.crt")
    own = (str(certificates / "client.crt"), str(certificates / "client.key"))
    with ScriptedServer(ssl_keyfile=key, ssl_certfile=certificate, ssl_ca_certs=own[0]) as server:
        url = server.url.replace("http:", "https:")
        assert requests.get(url + "/health", verify=certificate, cert=own, timeout=20).ok
        with pytest.raises(requests.RequestException):
            requests.get(url + "/health", verify=certificate, timeout=20)


def test_certificates_that_cannot_be_used_are_told_at_start(certificates: Path) -> None:
    key, certificate = str(certificates / "locked.key"), str(certificates / "locked.crt")
    opened = AccessConfig(ssl_keyfile=key, ssl_certfile=certificate, ssl_keyfile_password="secret")
    assert tls_context(opened) is not None
    assert tls_context(AccessConfig()) is None
    with pytest.raises(ConfigError, match="ssl_keyfile_password"):
        tls_context(AccessConfig(ssl_keyfile=key, ssl_certfile=certificate))
    with pytest.raises(ConfigError, match=r"nowhere\.crt"):
        tls_context(AccessConfig(ssl_keyfile=key, ssl_certfile="nowhere.crt"))
    good = {"ssl_keyfile": str(certificates / "server.key"), "ssl_certfile": str(certificates / "server.crt")}
    with pytest.raises(ConfigError, match="ssl_ca_certs 'nowhere'"):
        tls_context(AccessConfig(**good, ssl_ca_certs="nowhere"))


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"ssl_keyfile": "k"}, "ssl_keyfile is given without ssl_certfile"),
        ({"ssl_certfile": "k"}, "ssl_certfile is given without ssl_keyfile"),
        ({"ssl_ca_certs": "k"}, "ssl_ca_certs is given without"),
        ({"api_key": [""]}, "api_key holds a key that is empty"),
        ({"admin_api_key": "ä"}, "admin_api_key holds a key"),
        ({"allowed_origins": ["*"], "allow_credentials": True}, "allowed_origins is"),
        ({"root_path": "llm"}, "root_path is 'llm'"),
        ({"max_request_bytes": 0}, "max_request_bytes is 0"),
        ({"read_timeout": 0.0}, "read_timeout is 0.0; it must be above 0 seconds"),
    ],
)
def test_values_that_make_no_sense_are_refused(flags: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_config({"model_path": "m", **flags})


def test_request_ids_are_given_or_made(guarded: ScriptedServer) -> None:
    given = {"x-request-id": "mine-1"}
    for headers, status in (({**bearer("first"), **given}, 200), (given, 401)):
        reply = requests.post(guarded.url + "/generate", json=SAY, headers=headers, timeout=20)
        assert (reply.status_code, reply.headers["x-request-id"]) == (status, "mine-1")
    made = {requests.get(guarded.url + "/nowhere", timeout=20).headers["x-request-id"] for _ in range(3)}
    assert len(made) == 3
    # What could not stand in a header or in a log line is replaced.
    reply = requests.get(guarded.url + "/health", headers={"x-request-id": "a b" + "c" * 500}, timeout=20)
    assert len(reply.headers["x-request-id"]) == 32
    with httpx.stream(
        "POST", guarded.url + "/generate", json={**SAY, "stream": True}, headers={**bearer("first"), **given}
    ) as stream:
        assert stream.headers["x-request-id"] == "mine-1"
        assert json.loads(next(stream.iter_lines()).removeprefix("data: "))["text"] == "a"


def test_an_internal_fault_has_an_id_that_is_in_the_log(
    guarded: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(text: str, *, add_bos: bool) -> list[int]:
        raise ZeroDivisionError("a fault of ours")

    whole = guarded.manager.tokenizer.encode
    guarded.manager.tokenizer.encode = broken  # type: ignore[method-assign]
    try:
        for path, body in (("/generate", SAY), ("/v1/completions", {"model": "m", "prompt": "say:a"})):
            reply = requests.post(guarded.url + path, json=body, headers=bearer("first"), timeout=20)
            assert reply.status_code == 500
            error = reply.json()["error"]
            error_id = error["message"].split()[2].rstrip(";")
            assert (error["code"], error["type"]) == ("internal_error", "server_error")
            assert "a fault of ours" not in reply.text
            found = [record for record in caplog.records if error_id in record.getMessage()]
            assert len(found) == 1
            assert found[0].exc_info is not None
            assert found[0].exc_info[0] is ZeroDivisionError
    finally:
        guarded.manager.tokenizer.encode = whole  # type: ignore[method-assign]
    assert requests.post(guarded.url + "/generate", json=SAY, headers=bearer("first"), timeout=20).ok


def test_a_full_server_says_when_to_come_back() -> None:
    with ScriptedServer(max_running_requests=1, max_queued_requests=1) as server:
        reply = requests.post(server.url + "/generate", json={"text": ["a", "b", "c"]}, timeout=20)
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "1")
        assert "--max-queued-requests" in reply.json()["error"]["message"]


def test_http_of_no_kind_gets_the_envelope() -> None:
    with ScriptedServer() as server, socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"\x16\x03\x01 what\r\n\r\n")
        with client.makefile("rb") as replies:
            reply = replies.read()
        assert reply.startswith(b"HTTP/1.1 400 ")
        assert json.loads(reply.partition(b"\r\n\r\n")[2])["error"]["code"] == "invalid_request"

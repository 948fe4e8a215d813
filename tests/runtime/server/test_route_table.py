"""Routes are found by their path in a table, and by their pattern behind it; what is behind none is said in words."""

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from sgl_runtime.config_serving import AccessConfig
from sgl_runtime.server.access import AccessControl
from sgl_runtime.server.body_limit import BodyLimit
from sgl_runtime.server.http_answer import HttpAnswer
from sgl_runtime.server.http_call import CurrentCall
from sgl_runtime.server.http_entry import HttpEntry
from sgl_runtime.server.route_table import RouteTable


def answering(text: str) -> object:
    async def endpoint(request: Request) -> PlainTextResponse:
        return PlainTextResponse(text + request.path_params.get("name", ""))

    return endpoint


ROUTES = [
    Route("/one", answering("get one"), methods=["GET"]),
    Route("/one", answering("post one"), methods=["POST"]),
    Route("/things/{name}", answering("thing "), methods=["GET"]),
    Route("/things/{name}", answering("less "), methods=["DELETE"]),
    Route("/things/all", answering("all"), methods=["GET"]),
]


@pytest.fixture
def client() -> TestClient:
    access = AccessControl(AccessConfig(), admin_paths=(), open_paths=())
    answer = HttpAnswer(RouteTable(ROUTES), access=access, body_limit=BodyLimit(100))
    return TestClient(HttpEntry(answer, CurrentCall()))


def test_paths_and_methods_choose_the_endpoint(client: TestClient) -> None:
    assert client.get("/one").text == "get one"
    assert client.post("/one").text == "post one"
    assert client.head("/one").status_code == 200
    assert client.get("/things/blue").text == "thing blue"
    assert client.delete("/things/blue").text == "less blue"
    # What has no parameters comes first, whatever the order in which routes were given.
    assert client.get("/things/all").text == "all"


def test_what_is_not_there(client: TestClient) -> None:
    refused = client.delete("/one")
    assert refused.status_code == 405
    assert refused.headers["allow"] == "GET, HEAD, POST"
    refused = client.put("/things/blue")
    assert (refused.status_code, refused.headers["allow"]) == (405, "DELETE, GET, HEAD")
    assert client.get("/two").status_code == 404
    assert client.get("/one/").status_code == 404
    assert client.get("/").status_code == 404


def test_a_method_of_a_path_has_one_route() -> None:
    with pytest.raises(AssertionError, match=r"(GET|HEAD) /one is there twice"):
        RouteTable([ROUTES[0], ROUTES[0]])

"""RouteTable: finds the route of a request by its path in one look-up, however many routes there are."""

from collections.abc import Iterable

from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match, Route
from starlette.types import Receive, Scope, Send

from sgl_runtime.server.http_call import call_of


class RouteTable(BaseRoute):
    """Holds routes whose paths have no parameters; it stands for all of them.

    Args:
        routes: The routes; several of one path take different methods.

    Attributes:
        routes: The same.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._routes: dict[str, dict[str, Route]] = {}
        for route in self.routes:
            assert not route.param_convertors, f"{route.path} has parameters"
            by_method = self._routes.setdefault(route.path, {})
            for method in route.methods or ():
                assert method not in by_method, f"{method} {route.path} is there twice"
                by_method[method] = route

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Whether a path is here; its method is looked at later."""
        is_here = scope["type"] == "http" and call_of(scope).path in self._routes
        return (Match.FULL if is_here else Match.NONE), {}

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose path is here.

        Raises:
            HTTPException: the path does not take its method.
        """
        by_method = self._routes[call_of(scope).path]
        route = by_method.get(scope["method"])
        if route is None:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(by_method))})
        await route.app(scope, receive, send)


def table_first(routes: Iterable[BaseRoute]) -> list[BaseRoute]:
    """The same routes, those without parameters put into a table."""
    fixed: list[Route] = []
    others: list[BaseRoute] = []
    for route in routes:
        if isinstance(route, Route) and not route.param_convertors:
            fixed.append(route)
        else:
            others.append(route)
    return [RouteTable(fixed), *others]

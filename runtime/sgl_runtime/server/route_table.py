"""RouteTable: finds what answers a request, by its path in one look-up, however many routes there are."""

from collections.abc import Awaitable, Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route
from starlette.types import Scope

from sgl_runtime.server.http_call import call_of

Endpoint = Callable[[Request], Awaitable[Response]]
"""Answers a request; what is wrong with it raises an `SglRuntimeError`."""


class RouteTable:
    """Holds all routes; those whose paths have no parameters come before the others.

    Args:
        routes: The routes; several of one path take different methods.

    Attributes:
        routes: The same.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self.routes = tuple(routes)
        self._fixed: dict[str, dict[str, Endpoint]] = {}
        self._patterns = [route for route in self.routes if route.param_convertors]
        for route in self.routes:
            if route.param_convertors:
                continue
            by_method = self._fixed.setdefault(route.path, {})
            for method in route.methods or ():
                assert method not in by_method, f"{method} {route.path} is there twice"
                by_method[method] = route.endpoint

    def find(self, scope: Scope) -> Endpoint:
        """What answers a request; the parameters of its path are put into the scope.

        Raises:
            HTTPException: there is no such path, or it does not take the method.
        """
        method = scope["method"]
        by_method = self._fixed.get(call_of(scope).path)
        allowed: set[str] = set()
        if by_method is not None:
            if method in by_method:
                return by_method[method]
            allowed.update(by_method)
        for route in self._patterns if by_method is None else ():
            match, found = route.matches(scope)
            if match is Match.FULL:
                scope.update(found)
                endpoint: Endpoint = route.endpoint
                return endpoint
            if match is Match.PARTIAL:
                allowed.update(route.methods or ())
        if allowed:
            raise HTTPException(405, headers={"Allow": ", ".join(sorted(allowed))})
        raise HTTPException(404)

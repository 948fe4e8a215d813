"""AccessControl: which paths a request may call with the key that it brings."""

from collections.abc import Collection
from hmac import compare_digest

from starlette.types import Scope

from sgl_runtime.config_serving import AccessConfig
from sgl_runtime.errors import AuthenticationError
from sgl_runtime.server.http_call import call_of
from sgl_runtime.server.http_log import PROBES

_SCHEME = b"bearer "


class AccessControl:
    """Lets requests with the right key through.

    Args:
        config: The keys.
        admin_paths: Paths that act on the server as a whole.
        open_paths: Paths that take no key: what they hold is in every copy of this package.
    """

    def __init__(self, config: AccessConfig, *, admin_paths: Collection[str], open_paths: Collection[str]) -> None:
        self._admin_paths = frozenset(admin_paths)
        probes = () if config.api_key_for_probes else PROBES
        self._open_paths = frozenset([*open_paths, *probes])
        self._keys = [key.encode() for key in config.api_key]
        self._admin_keys = self._keys if config.admin_api_key is None else [config.admin_api_key.encode()]

    def check(self, scope: Scope) -> None:
        """Look at the key of a request.

        Raises:
            AuthenticationError: its key is missing or wrong.
        """
        path = call_of(scope).path
        if path not in self._open_paths:
            if path in self._admin_paths:
                _check(scope, self._admin_keys, "the admin key")
            elif self._keys:
                _check(scope, [*self._keys, *self._admin_keys], "an api key")


def _check(scope: Scope, keys: list[bytes], what: str) -> None:
    if not keys:
        return
    given = _given_key(scope)
    if given is None:
        raise AuthenticationError(f"the path needs {what}; send it as Authorization: Bearer KEY or as x-api-key: KEY")
    # All are compared, each in a time that does not tell how much of it was right.
    if not sum(compare_digest(given, key) for key in keys):
        raise AuthenticationError(f"the key is wrong; the path needs {what}")


def _given_key(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"x-api-key":
            key: bytes = value
            return key
        if name == b"authorization" and value[: len(_SCHEME)].lower() == _SCHEME:
            token: bytes = value[len(_SCHEME) :].strip()
            return token
    return None

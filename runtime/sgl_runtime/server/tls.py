"""The certificates of a server that speaks TLS."""

import ssl

from sgl_runtime.config_serving import AccessConfig
from sgl_runtime.errors import ConfigError


def tls_context(config: AccessConfig) -> ssl.SSLContext | None:
    """What connections are encrypted with; None for a server without TLS.

    Raises:
        ConfigError: a file cannot be read, or the parts do not fit each other.
    """
    if config.ssl_certfile is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Without a callback OpenSSL would ask at the terminal.
    password = config.ssl_keyfile_password or ""
    try:
        context.load_cert_chain(config.ssl_certfile, config.ssl_keyfile, lambda: password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"ssl_certfile {config.ssl_certfile!r} and ssl_keyfile {config.ssl_keyfile!r} cannot be used:"
            f" {error.strerror or error}; the key may need ssl_keyfile_password"
            if isinstance(error, OSError)
            else f"ssl_keyfile {config.ssl_keyfile!r} cannot be used: {error}"
        ) from error
    if config.ssl_ca_certs is not None:
        try:
            context.load_verify_locations(config.ssl_ca_certs)
        except (OSError, ssl.SSLError) as error:
            raise ConfigError(
                f"ssl_ca_certs {config.ssl_ca_certs!r} cannot be used: {error.strerror or error}"
            ) from error
        context.verify_mode = ssl.CERT_REQUIRED
    return context

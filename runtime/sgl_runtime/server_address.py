"""The address of a server, as the commands that talk to one take it."""

import argparse


def server_address(text: str) -> str:
    """What the paths of a server stand behind: the address without a slash and without the `/v1` of OpenAI's clients.

    Raises:
        argparse.ArgumentTypeError: it is no http or https address.
    """
    if not text.startswith(("http://", "https://")):
        raise argparse.ArgumentTypeError(f"{text!r} must begin with http:// or https://")
    return text.rstrip("/").removesuffix("/v1").rstrip("/")

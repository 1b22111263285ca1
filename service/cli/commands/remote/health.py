"""`octet health`: checks whether a server is up, for container health checks."""

from __future__ import annotations

from typing import Annotated

import typer

from service.cli.configuration import server_url
from service.cli.options import JsonOption, ServerOption
from service.cli.output import FAILURE, reporting

_PATIENCE_S = 5.0


def health(
    ready: Annotated[bool, typer.Option("--ready", help="Also check that it accepts requests now.")] = False,
    server: ServerOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check that a server is alive, over HTTP or HTTPS as configured; exit status 1 if it is not."""
    url = f"{server_url(server).rstrip('/')}/v2/health/{'ready' if ready else 'live'}"
    with reporting(as_json) as output:
        status = _request_status(url)
        if as_json:
            output.document({"url": url, "healthy": status == "200", "said": status})
        else:
            output.show(f"{url}: {status}")
    if status != "200":
        raise typer.Exit(FAILURE)


def _request_status(url: str) -> str:
    """Returns the HTTP status, or why there is none.

    The certificate is not verified: it is for the server's public name rather than this address, and the request
    contains nothing confidential.
    """
    import httpx

    try:
        return str(httpx.get(url, timeout=_PATIENCE_S, verify=False, trust_env=False).status_code)
    except (httpx.TransportError, httpx.InvalidURL) as error:
        return str(error) or type(error).__name__

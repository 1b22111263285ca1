"""Compression of responses of the control plane."""

from __future__ import annotations


def accepts_gzip(accept_encoding: str) -> bool:
    """Returns true if a client with this header `Accept-Encoding` reads gzip."""
    offers = [part.partition(";") for part in accept_encoding.lower().split(",")]
    return any(coding.strip() in ("gzip", "*") and value.replace(" ", "") != "q=0" for coding, _, value in offers)

"""RFC 9457 problem documents, without a web framework: the supervisor sends some of them, and does not load a
framework.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from service.core.errors import OctetError

MEDIA_TYPE = "application/problem+json"


def document(
    status: int, code: str, title: str, detail: str, members: Mapping[str, Any], path: str, request_id: str
) -> bytes:
    """Returns a response body of type `MEDIA_TYPE`.

    Args:
        members: members in addition to those that every document has.
        path: the path of the request.
    """
    members = {
        "type": f"urn:octet:problem:{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "instance": path,
        "code": code,
        **members,
        "request_id": request_id,
        "error": detail,
    }
    return json.dumps(members, ensure_ascii=False).encode(errors="backslashreplace")


def title_of(kind: type[OctetError]) -> str:
    return (kind.__doc__ or kind.__name__).split("\n")[0]

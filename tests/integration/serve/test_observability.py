"""The log and the traces of a complete server."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.compiled import EXAMPLES
from tests.support.otlp_collector import collector
from tests.support.serving import serving

TRACE = "0af7651916cd43dd8448eb211c80319c"
HEADERS = {
    "Content-Type": "image/png",
    "X-Request-Id": "mine",
    "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    "Authorization": "Bearer not-to-be-logged",
}


@pytest.mark.slow
def test_each_log_line_is_a_json_object_and_each_prediction_a_trace(tmp_path: Path, capfd: Any) -> None:
    with collector() as collected:
        with serving(tmp_path, log_format="json", trace_endpoint=collected.endpoint) as served:
            assert served.ended(served.push()["id"])["state"] == "succeeded"
            picture = (EXAMPLES / "digits" / "3.png").read_bytes()
            answer = served.client.post("/v2/models/digits/infer", content=picture, headers=HEADERS)
            assert answer.status_code == 200
            assert served.stop() == 0
        assert {span.trace_id.hex() for span in collected.spans} == {TRACE}
        assert {span.name for span in collected.spans} >= {"queue", "batch", "run"}
    text = capfd.readouterr().err
    assert "not-to-be-logged" not in text
    lines: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
    assert all({"time", "level", "logger", "message"} <= line.keys() for line in lines)

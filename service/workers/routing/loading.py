"""Loads and unloads models on request, on all workers of a cluster that this concerns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from http import HTTPStatus
from typing import Literal
from urllib.parse import quote

from service.core.cluster.worker import Worker
from service.core.errors import NotReady
from service.workers.routing.asking import map_workers, post
from service.workers.routing.security import Security

Action = Literal["load", "unload"]
_MOST_BYTES = 1 << 20
_MAX_LISTED = 3  # how many failed workers a message lists


def run_on_all(workers: Sequence[Worker], action: Action, model: str, security: Security) -> None:
    """Makes each of the workers load or unload a model. Blocks until all have answered.

    Raises:
        NotReady: some workers failed; the message lists them with the reasons. The other workers have loaded or
            unloaded the model.
    """
    path = f"/v2/repository/models/{quote(model, safe='')}/{action}"

    def problem(worker: Worker) -> str:
        try:
            response = post(worker, path, {"content-type": "application/json"}, b"{}", security, _MOST_BYTES)
        except NotReady as error:
            return error.message
        return "" if response.status == HTTPStatus.OK else _reason(response.status, response.body)

    answers = zip(workers, map_workers(workers, problem), strict=True)
    failed = [f"{worker.id} of pool {worker.pool}: {why}" for worker, why in answers if why]
    if failed:
        more = f"; and {len(failed) - _MAX_LISTED} more" if len(failed) > _MAX_LISTED else ""
        raise NotReady(
            f"{len(failed)} of {len(workers)} workers did not {action} model {model!r}: "
            f"{'; '.join(failed[:_MAX_LISTED])}{more}",
            hint=f"the others did; another {action} request goes to all of them again",
        )


def _reason(status: int, body: bytes) -> str:
    try:
        return str(json.loads(body)["detail"])
    except (ValueError, LookupError, TypeError):
        return f"it answered {status}"

"""`python -m tests.support.cluster_load URL MODEL`: shows digits until its standard input ends; $KEY is the key.

Prints one line when the first answer is there, and at the end how many were right, wrong, refused, and lost: accepted
and not answered. A connection that was not accepted is counted apart.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from collections import Counter

import httpx

from tests.support.deployment import ROOT

_CLIENTS = 6
_PICTURES = [(ROOT / "examples" / "digits" / f"{digit}.png").read_bytes() for digit in range(10)]


def main() -> None:
    url, model = sys.argv[1:]
    over, first, counts = threading.Event(), threading.Event(), Counter[str]()
    threads = [
        threading.Thread(target=_ask, args=(f"{url}/v2/models/{model}/infer", over, first, counts))
        for _ in range(_CLIENTS)
    ]
    for thread in threads:
        thread.start()
    first.wait()
    print("ready", flush=True)
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()
    print(json.dumps(counts), flush=True)


def _ask(url: str, over: threading.Event, first: threading.Event, counts: Counter[str]) -> None:
    headers = {"content-type": "image/png", "authorization": f"Bearer {os.environ['KEY']}"}
    with httpx.Client(timeout=60, trust_env=False, headers=headers) as client:
        digit = 0
        while not over.is_set():
            digit = (digit + 1) % 10
            counts[what := _answer(client, url, digit)] += 1
            if what == "right":
                first.set()


def _answer(client: httpx.Client, url: str, digit: int) -> str:
    try:
        response = client.post(url, content=_PICTURES[digit])
    except httpx.ConnectError:
        return "not accepted"
    except httpx.TransportError:
        return "lost"
    if response.status_code != 200:
        return "refused"
    values = response.json()["outputs"][0]["data"]
    return "right" if max(range(10), key=values.__getitem__) == digit else "wrong"


if __name__ == "__main__":
    main()

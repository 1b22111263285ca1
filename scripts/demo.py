"""`make demo`: everything from push to prediction, with the code that the `octet` command uses.

Starts a server on a free port with a folder of its own, pushes a sample model, classifies a picture with it, pushes the
model once more, and leaves nothing behind.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from service.cli.client import Client
from service.cli.commands.remote.predict import ask
from service.cli.options import read_labels
from service.cli.output import Output, reporting
from service.cli.predicting.answers import bars
from service.cli.predicting.picture import as_blocks
from service.cli.pushing import push_model
from service.cli.reports import summary

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"
MODEL = EXAMPLES / "digits_int8.tflite"
LABELS = EXAMPLES / "labels.txt"
DIGIT = "2"
_STOP_S = 20.0


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="octet-demo-") as folder, reporting(as_json=False) as output:
        step(output, "octet serve")
        with serving(Path(folder)) as started, Client(started["url"]) as client:
            output.show(f"  {started['url']}, on a host that is a {started['target']}")
            answer = show(client, output)
        output.show("\nThe server has stopped, and its folder is gone. Yours: octet serve")
    return 0 if answer == DIGIT else 1


def show(client: Client, output: Output) -> str:
    """Runs the steps of the demo. Returns the label that the model predicted."""
    step(output, f"octet push {relative_path(MODEL)}")
    pushed = push_model(client, MODEL, "digits", "host", None, output)
    build = pushed["build"]
    output.show(f"  built for {build['target']} in {pushed['seconds']:.2f} s", summary(pushed["reports"]))

    picture = EXAMPLES / "digits" / f"{DIGIT}.png"
    step(output, f"octet predict digits {relative_path(picture)} --labels {relative_path(LABELS)}")
    output.show(as_blocks(picture.read_bytes()))
    answer = ask(client, "digits", [picture.read_bytes()])
    best = answer.dequantized().classes(read_labels(LABELS))
    output.show(bars(best), f"  answered in {answer.took_s * 1000:.1f} ms, HTTP included")

    step(output, f"octet push {relative_path(MODEL)}   # once more")
    again = push_model(client, MODEL, "digits", "host", None, output)
    output.show(
        f"  from the cache in {again['seconds'] * 1000:.0f} ms: the same file for the same target is built once"
    )
    return str(best[0]["label"])


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[dict[str, Any]]:
    """Runs a server on a free port with its data in `folder`. Yields its start-up message; prints its log if it
    fails.
    """
    command = [sys.executable, "-m", "service.cli", "serve", "--port", "0", "--data-dir", str(folder), "--json"]
    with (folder / "serve.log").open("w+") as log:
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        try:
            assert server.stdout is not None
            started = server.stdout.readline()
            if not started:
                log.seek(0)
                raise SystemExit(f"the server did not start:\n{log.read()}")
            yield json.loads(started)
        finally:
            server.terminate()
            server.wait(_STOP_S)


def step(output: Output, command: str) -> None:
    output.show(f"\n[bold]$ {command}[/bold]")


def relative_path(path: Path) -> str:
    return str(path.relative_to(EXAMPLES.parent))


if __name__ == "__main__":
    sys.exit(main())

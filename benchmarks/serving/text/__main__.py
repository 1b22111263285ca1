"""Measures `POST /v1/embeddings` of Octet beside infinity-emb, fastembed, and FastAPI with ONNX Runtime:

    python -m benchmarks.serving.text --seconds 10

The model is an int8 MiniLM as Hugging Face has it; `benchmarks.serving.text.make_folder` makes it if it is missing. A
server has one core, and the client another one. The peers' environments are those of `benchmarks.setup_peers`; a server
that does not start is left out with a message. A second table shows texts, pictures and tensors at Octet's server, each
alone and all at the same time.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from benchmarks.harness.home import CHECKOUT, default_home
from benchmarks.harness.machine import cores_for, cpu_name, end_with_parent, free_port, timestamp, tree
from benchmarks.harness.server import serving
from benchmarks.harness.tables import print_table, write_section
from benchmarks.serving.text import mixed
from benchmarks.serving.text.load import MODEL, Outcome, embedding_requests, run, texts
from benchmarks.serving.text.peak import MACS_OF_TOKEN, measure_peak
from service.core.target import detect_host

_CONNECTIONS = (1, 8, 64)
_SAMPLES, _START_LIMIT_S, _WARM_S = 512, 120.0, 2.0
_METHOD = """\
{at}; {cpu}. int8 MiniLM-L6 with dynamic quantization,
built for 1 to 256 tokens; all servers have the same file. A server has core {server}, and the client has core
{client}; {s:g} s for each row after a warm-up. Each request is one text, whose length is random (log-normal, with means
of 6 words for queries and 56 for passages, as in MS MARCO). The int8 peak of the core is {peak:.0f} GMAC/s, and the
share of it counts the linear layers. Octet refuses requests that would wait too long; the others have no such limit.
Memory is the resident set of all processes of a server."""
_MIXED = "Octet's server, with each kind of request alone, and beside the two others:"
Start = Callable[[Path, int, Path], AbstractContextManager[tuple[int, int]]]
_COLUMNS = (
    "server",
    "connections",
    "requests/s",
    "p50 ms",
    "p99 ms",
    "tokens/s",
    "of the peak",
    "failed",
    "MB",
    "start s",
)
_OCTET = "Octet"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="by default, the folder is made")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--servers", nargs="+", choices=list(_SERVERS), default=list(_SERVERS))
    parser.add_argument("--write", action="store_true", help="put the tables into RESULTS.md")
    arguments = parser.parse_args()
    arguments.folder = (arguments.folder or _make_folder()).resolve()
    server_core, client_core = cores_for(2)
    allowed = os.sched_getaffinity(0)
    with tempfile.TemporaryDirectory(prefix="ob-") as scratch:
        if _OCTET in arguments.servers:
            _build(arguments.folder, Path(scratch))
        os.sched_setaffinity(0, {server_core})
        peak = measure_peak()
        method = _METHOD.format(
            at=timestamp(), cpu=cpu_name(), server=server_core, client=client_core, peak=peak / 1e9, s=arguments.seconds
        )
        print(f"\n{method}\n", flush=True)
        os.sched_setaffinity(0, {client_core})
        parts = [method, print_table(_COLUMNS, _rows(arguments, server_core, Path(scratch), peak))]
        if _OCTET in arguments.servers:
            print()
            with _octet(arguments.folder, server_core, Path(scratch)) as (port, _):
                parts += [_MIXED, print_table(mixed.COLUMNS, mixed.rows(port, arguments.seconds))]
    os.sched_setaffinity(0, allowed)
    if arguments.write:
        machine = f"{cpu_name()}, {detect_host().target.name}"
        write_section("RESULTS.md", "texts", "\n\n".join([f"## Embeddings of texts, {machine}", *parts]), machine)


def _make_folder() -> Path:
    """Returns the folder of the model. Makes it if it is missing."""
    home = default_home()
    folder = home.models / "all-minilm-l6-v2-int8"
    if not (folder / "onnx").exists():
        python = home.python("infinity")
        subprocess.run([python, "-m", "benchmarks.serving.text.make_folder", folder], check=True, cwd=CHECKOUT)
    return folder


def _rows(arguments: argparse.Namespace, core: int, scratch: Path, peak: float) -> Iterator[list[str]]:
    samples = embedding_requests(texts(0, _SAMPLES))
    for name in arguments.servers:
        try:
            began_s = time.monotonic()
            with _SERVERS[name](arguments.folder, core, scratch) as (port, pid):
                start_s = time.monotonic() - began_s
                asyncio.run(run(port, 8, _WARM_S, samples))
                for connections in _CONNECTIONS:
                    found = asyncio.run(run(port, connections, arguments.seconds, samples))
                    yield _row(name, connections, found, _resident_mb(pid), start_s, peak)
        except (OSError, RuntimeError, asyncio.IncompleteReadError) as error:
            print(f"{name}: FAILED, {error}", file=sys.stderr, flush=True)


def _row(name: str, connections: int, found: Outcome, memory_mb: float, start_s: float, peak: float) -> list[str]:
    tokens = (found.words + 2 * len(found.seconds_by_request)) / found.elapsed_s  # with [CLS] and [SEP]
    times = f"{found.percentile_ms(0.5):.1f}", f"{found.percentile_ms(0.99):.1f}"
    share = f"{100 * tokens * MACS_OF_TOKEN / peak:.0f} %"
    cells = [name, str(connections), f"{found.rate:.1f}", *times, f"{tokens:.0f}", share, str(found.failures)]
    return [*cells, f"{memory_mb:.0f}", f"{start_s:.1f}"]


def _resident_mb(pid: int) -> float:
    pages = (int(Path(f"/proc/{each}/statm").read_text().split()[1]) for each in tree(pid))
    return sum(pages) * 4096 / 1e6


def _build(folder: Path, scratch: Path) -> None:
    """Pushes the models to a server that uses all cores, and waits for the builds."""
    cores = sorted(os.sched_getaffinity(0))
    with serving(scratch / "data", cores, scratch / "build.log") as server:
        environment = os.environ | {"OCTET_SERVER": server.url}
        for path, name in ((folder, MODEL), (mixed.SOURCE, mixed.DIGITS)):
            command = [sys.executable, "-m", "service.cli", "push", str(path), "--name", name]
            subprocess.run(command, check=True, env=environment, cwd=CHECKOUT, stdout=sys.stderr)


@contextmanager
def _octet(folder: Path, core: int, scratch: Path) -> Iterator[tuple[int, int]]:
    with serving(scratch / "data", [core], scratch / "octet.log", "--no-compile") as server:
        _await(server.port, lambda: True)
        yield server.port, server.pid


def _peer(environment: str, *command: str) -> Start:
    """Returns a server in an environment. `{port}` and `{folder}` in the command are replaced."""

    @contextmanager
    def start(folder: Path, core: int, scratch: Path) -> Iterator[tuple[int, int]]:
        port = free_port()
        python = default_home().python(environment)
        words = [each.format(port=port, folder=folder) for each in command]
        threads = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "DO_NOT_TRACK": "1"}
        settings = {
            **threads,
            "PYTHONPATH": str(CHECKOUT),
            "HF_HUB_OFFLINE": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        }

        def prepare() -> None:
            os.sched_setaffinity(0, {core})
            end_with_parent()

        with (scratch / f"{environment}.log").open("wb") as log:
            process = subprocess.Popen(
                [python, *words], env=os.environ | settings, stdout=log, stderr=log, preexec_fn=prepare
            )
        try:
            _await(port, lambda: process.poll() is None, scratch / f"{environment}.log")
            yield port, process.pid
        finally:
            process.kill()
            process.wait()

    return start


def _await(port: int, is_running: Callable[[], bool], log: Path | None = None) -> None:
    """Waits for the first embedding. Raises RuntimeError if there is none in time."""
    ends_s = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < ends_s and is_running():
        try:
            if asyncio.run(run(port, 1, 0.01, embedding_requests(["the"]))).failures == 0:
                return
        except (OSError, asyncio.IncompleteReadError):
            pass
        time.sleep(0.2)
    raise RuntimeError(log.read_text(errors="replace")[-600:] if log else "it does not answer")


_FASTAPI = ("-m", "benchmarks.serving.text.fastapi_server", "{port}")
# infinity-emb 0.0.78 passes an absolute path to optimum 2.1, which takes names of files only.
_INFINITY_MAIN = (
    "from pathlib import Path; from infinity_emb.transformer.embedder import optimum; "
    "from infinity_emb.cli import cli; "
    "optimum.get_onnx_files = lambda *_, **options: Path('model_quantized.onnx'); cli()"
)
_INFINITY = (
    "-c",
    _INFINITY_MAIN,
    "v2",
    "--model-id",
    "{folder}",
    "--served-model-name",
    MODEL,
    "--port",
    "{port}",
)
_INFINITY_OPTIONS = ("--device", "cpu", "--no-bettertransformer", "--batch-size", "32", "--url-prefix", "/v1")
_SERVERS: Mapping[str, Start] = {
    _OCTET: _octet,
    # Batches of texts of different lengths are padded, so one text at a time can be faster. Both are measured.
    "FastAPI, ONNX Runtime": _peer("textfastapi", *_FASTAPI, "onnxruntime", "{folder}", "1"),
    "FastAPI, ONNX Runtime, batches of 32": _peer("textfastapi", *_FASTAPI, "onnxruntime", "{folder}", "32"),
    "fastembed": _peer("fastembed", *_FASTAPI, "fastembed", "{folder}", "1"),
    "fastembed, batches of 32": _peer("fastembed", *_FASTAPI, "fastembed", "{folder}", "32"),
    "infinity-emb": _peer("infinity", *_INFINITY, "--engine", "optimum", *_INFINITY_OPTIONS),
}

if __name__ == "__main__":
    main()

"""Measures the cost of serving, compared with the peers, and the behaviour under load:

    python -m benchmarks.serving                                          # all but the soak: about 11 minutes
    python -m benchmarks.serving --parts throughput --models mobilenet_v2 --peers fastapi-openvino bentoml
    python -m benchmarks.serving --parts overload fairness --overload-seconds 20
    python -m benchmarks.serving --parts footprint
    python -m benchmarks.serving --parts soak --soak-minutes 30

Writes a file of JSON lines, whose name it prints; `python -m benchmarks.serving.report` makes tables from it. The
peers' environments are those of `benchmarks.setup_peers`. A missing environment, or a peer that fails, is left out with
a message.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Sequence
from contextlib import closing
from importlib.metadata import version
from pathlib import Path

from benchmarks.harness.home import default_home
from benchmarks.harness.link import Waiting
from benchmarks.harness.machine import cores_for, cpu_name, timestamp
from benchmarks.harness.predictions import build, random_inputs
from benchmarks.harness.server import serving
from benchmarks.serving import soak
from benchmarks.serving.bench import Bench, Generator, Rules
from benchmarks.serving.contestants import DIGITS, HEAVY, LIGHT, NUMERICS, OVERLOADED, SERVED, Served
from benchmarks.serving.parts import fairness, footprint, overhead, overload, roads, throughput
from benchmarks.serving.records import PART, Run
from service.cli.client import Client
from service.core.target import detect_host

_PARTS = ("overhead", "roads", "throughput", "overload", "fairness", "footprint", "soak")
_OVERHEAD_ROUNDS, _OVERHEAD_S = 7, 0.6


def main() -> None:
    arguments = parse_arguments()
    home, rules, cores = default_home(), Rules(arguments.rounds, arguments.seconds), sorted(os.sched_getaffinity(0))
    server_core, client_core = cores_for(2)
    path = arguments.output or home.new_results(PART)
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="ob-") as directory, path.open("x") as output:
        data_dir = arguments.data_dir or Path(directory, "data")
        with closing(Generator(client_core)) as generator:
            bench = Bench(home, rules, server_core, client_core, generator, data_dir, Path(directory), output)
            bench.record(describe(bench, arguments.note))
            models = chosen(arguments)
            with bench.surviving("building"):
                build_all(bench, models)
            os.sched_setaffinity(
                0, {client_core}
            )  # processes that are started later inherit it, or are pinned elsewhere
            run(bench, [it for it in models if it.name in bench.digests], cores, arguments)
    print(f"\n{path}")


def chosen(arguments: argparse.Namespace) -> list[Served]:
    """Returns the models that the parts need, or the named ones among them."""
    needed = {"roads": (DIGITS, SERVED[0]), "footprint": SERVED[:1], "overload": OVERLOADED, "fairness": (LIGHT, HEAVY)}
    wanted = [served for part in arguments.parts for served in needed.get(part, SERVED)]
    named = [*arguments.models, *([LIGHT.name, HEAVY.name] if "fairness" in arguments.parts else [])]
    return [it for it in (*SERVED, DIGITS) if it in wanted and (not arguments.models or it.name in named)]


def run(bench: Bench, models: Sequence[Served], cores: Sequence[int], arguments: argparse.Namespace) -> None:
    parts = set(arguments.parts) | ({"soak"} if arguments.soak_minutes else set())
    catalog = [it for it in models if it in SERVED]
    if "overhead" in parts and catalog:
        print(f"\nOverhead, {catalog[0].row.title}", flush=True)
        with bench.surviving("overhead"):
            overhead.measure(bench, catalog[0], _OVERHEAD_ROUNDS, _OVERHEAD_S)
    if "roads" in parts:
        for served, ways, connections in ((DIGITS, roads.WAYS, (1, 8)), (SERVED[0], roads.WAYS, (1,))):
            if served in models:
                print(f"\nRoads to {served.row.title}", flush=True)
                with bench.surviving(f"roads to {served.name}"):
                    roads.measure(bench, served, ways, connections)
    for served in catalog if "throughput" in parts else []:
        print(f"\n{served.row.title}", flush=True)
        with bench.surviving(f"throughput of {served.name}"):
            throughput.measure(bench, served, arguments.peers)
    for served in [it for it in OVERLOADED if it in models] if "overload" in parts else []:
        others = [core for core in cores if core != bench.server_core] or [bench.client_core]
        for factor in arguments.overload:
            print(f"\nOverload, {served.row.title}, {factor:g} times", flush=True)
            with bench.surviving(f"overload of {served.name}, {factor:g} times"):
                overload.measure(bench, served, factor, arguments.overload_seconds, others)
    if "fairness" in parts and LIGHT in models and HEAVY in models:
        print(f"\n{LIGHT.row.title} beside {HEAVY.row.title}", flush=True)
        with bench.surviving("fairness"):
            fairness.measure(bench, LIGHT, HEAVY, cores, arguments.overload_seconds / 3)
    if "footprint" in parts and catalog:
        print(f"\nAt rest, {catalog[0].row.title}", flush=True)
        with bench.surviving("footprint"):
            footprint.measure(bench, catalog[0], cores)
    if "soak" in parts:
        print("\nSoak", flush=True)
        with bench.surviving("soak"):
            soak.measure(bench, catalog, arguments.soak_minutes or 1.0)


def build_all(bench: Bench, models: Sequence[Served]) -> None:
    """Pushes the models to a server that uses all cores. Raises RuntimeError if a build fails."""
    cores = sorted(os.sched_getaffinity(0))
    with serving(bench.data_dir, cores, bench.scratch / "build.log") as server, Client(server.url) as client:
        for served in models:
            path = served.path(bench.home)
            print(f"building {served.row.title} ...", flush=True)
            done, _ = build(client, path, served.name, NUMERICS)
            bench.digests[served.name] = done["artifact"]
            (bench.images[served.name],) = random_inputs(path)


def describe(bench: Bench, note: str) -> Run:
    return Run(
        started_at=timestamp(),
        cpu=cpu_name(),
        target=detect_host().target.name,
        server_core=bench.server_core,
        client_core=bench.client_core,
        numerics=NUMERICS,
        rounds=bench.rules.rounds,
        seconds=bench.rules.seconds,
        share=bench.rules.share,
        versions={"octet": version("octet-serve"), "apache-tvm": version("apache-tvm")},
        note=note,
        generator=Waiting.POLLING,
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = Rules()
    parser.add_argument("--parts", nargs="+", choices=_PARTS, default=_PARTS[:6], help="default: the first six")
    parser.add_argument(
        "--models", nargs="+", choices=[it.name for it in (*SERVED, DIGITS)], default=[], help="default: all"
    )
    parser.add_argument("--peers", nargs="*", help="default: all; without a name: none")
    parser.add_argument("--rounds", type=int, default=defaults.rounds)
    parser.add_argument("--seconds", type=float, default=defaults.seconds, help="of a turn under load")
    parser.add_argument("--overload", type=float, nargs="+", default=[3.0, 10.0], help="times the capacity")
    parser.add_argument("--overload-seconds", type=float, default=60.0)
    parser.add_argument("--soak-minutes", type=float, default=0.0, help="adds the soak")
    parser.add_argument("--data-dir", type=Path, help="folder of the server, which is retained: models are built once")
    parser.add_argument("--note", default="", help="said in the report")
    parser.add_argument("--output", type=Path, help="default: a new file in the folder of results")
    return parser.parse_args()


if __name__ == "__main__":
    main()

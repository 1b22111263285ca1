"""Quantizes float networks by each tool and method, runs all of them, and writes QUANTIZATION.md:

python -m benchmarks.quantization                  # all networks: an hour or two
python -m benchmarks.quantization --only WORD …    # those with one of the words in their title
python -m benchmarks.quantization --compile        # compiles the files for --speed: half an hour, once
python -m benchmarks.quantization --speed          # times the stored files; needs a quiet machine, and eight minutes
python -m benchmarks.quantization --calibration    # images per second and memory of calibration; likewise
python -m benchmarks.quantization --page           # writes only the page, from stored results

Results and quantized files are stored in the benchmarks' home, and the page contains all of them. Needs the environment
`quantization` (`python -m benchmarks.setup_peers --making`).
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.home import Home, default_home
from benchmarks.quantization import calibration, speed
from benchmarks.quantization.making import measured
from benchmarks.quantization.networks import NETWORKS
from benchmarks.quantization.page import page
from benchmarks.quantization.records import read, results_of, slug, write

_PAGE = Path(__file__).parents[1] / "QUANTIZATION.md"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", default=[], metavar="WORD")
    passes = parser.add_mutually_exclusive_group()
    for name in ("--compile", "--speed", "--calibration", "--page"):
        passes.add_argument(name, action="store_true")
    parser.add_argument(
        "--minutes", type=float, default=7, help="time of --speed after which no further network is started"
    )
    parser.add_argument(
        "--lines", type=int, default=400, help="number of pictures of text, and of faces, in the test set"
    )
    arguments = parser.parse_args()
    home, failed = default_home(), []
    titles = [title for title in NETWORKS if not arguments.only or _has(title, arguments.only)]
    taken = [record for record in read(home, titles) if not record.refused]
    if arguments.compile:
        speed.compile_all(home, taken)
    elif arguments.speed:
        speed.measure(home, taken, 60 * arguments.minutes)
    elif arguments.calibration:
        calibration.measure(home)
    elif not arguments.page:
        failed = accuracy(home, titles, arguments.lines)
    parts = [speed.section(home), calibration.section(home)]
    _PAGE.write_text(page(read(home, [*NETWORKS]), parts, _PAGE.read_text()))
    if failed:
        sys.exit(f"could not be measured: {', '.join(failed)}")


def _has(title: str, words: list[str]) -> bool:
    return any(word.lower() in title.lower() for word in words)


def accuracy(home: Home, titles: list[str], lines: int) -> list[str]:
    """Measures networks, one by one. Returns the titles of those that failed."""
    failed = []
    for title in titles:
        print(f"{title} ...", flush=True)
        try:
            record = measured(title, NETWORKS[title](lines))
        except subprocess.CalledProcessError as error:
            print(f"  {str(error.stderr)[-2000:]}", flush=True)
            failed.append(title)
            continue
        write(results_of(home, slug(title)), record.to_json())
        for row in record.rows:
            counted = row.judged or row.agreed
            share = f"{counted.share:.1%}" if counted else row.failed
            print(f"  {row.name}: {share}, {row.noise_db:.1f} dB, {row.seconds:.0f} s", flush=True)
        print(f"  {record.refused or record.said}", flush=True)
    return failed


if __name__ == "__main__":
    main()

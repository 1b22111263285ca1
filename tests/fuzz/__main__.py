"""Fuzzes an importer, guided by the coverage of its code:
`python -m tests.fuzz FORMAT [--seconds 60] [--corpus FOLDER]`.

It needs atheris, which is not in the project's lock files. A finding is one of: an exception other than an `OctetError`
with a stage; an import that takes too long or too much memory; a crash; an action that reading a file does not need.
The exit status is 1 if there were findings.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.fuzz.seeds import SEEDS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description="Fuzzes an importer.")
    parser.add_argument("format", choices=sorted(SEEDS))
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--corpus", type=Path, help="reused by later runs; by default a temporary folder")
    parser.add_argument("--findings", type=Path, default=Path("fuzz-findings"), help="where they are written")
    arguments = parser.parse_args()
    findings = arguments.findings / arguments.format
    findings.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        corpus = arguments.corpus or Path(folder)
        corpus.mkdir(parents=True, exist_ok=True)
        for seed in SEEDS[arguments.format]():
            (corpus / hashlib.sha256(seed).hexdigest()[:20]).write_bytes(seed)
        status = subprocess.run(
            [sys.executable, "-m", "tests.fuzz.hunt", arguments.format, corpus, findings, str(arguments.seconds)],
            check=False,
        ).returncode
    found = sorted(findings.iterdir())
    print(f"{arguments.format}: {len(found)} findings in {findings}" + "".join(f"\n  {path.name}" for path in found))
    return 1 if found or status else 0


if __name__ == "__main__":
    sys.exit(main())

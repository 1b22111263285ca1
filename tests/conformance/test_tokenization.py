"""The tokens of random texts equal those of transformers' AutoTokenizer.

`python -m benchmarks.models.tokenizers` downloads the tokenizers, and `python -m benchmarks.setup_peers --making`
creates the environments of transformers.
"""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from benchmarks.harness.home import default_home
from benchmarks.models.tokenizers import SOURCES, folder_of
from tests.conformance.tokenization.comparing import Local, differences
from tests.conformance.tokenization.texts import LINE_BYTES, LONG_EVERY, text
from tests.support.evidence import note_tokens

RELEASES = {"transformers-4": "transformers 4.57.6", "transformers": "transformers 5.23.0"}
# Release 5 builds the tokenizers of these classes without the normalizer of the file.
REBUILT = {("transformers", "deberta_v3"), ("transformers", "llama2")}
CASES = [
    (environment, source.name)
    for environment in RELEASES
    for source in SOURCES
    if (environment, source.name) != ("transformers-4", "claude")  # whose class release 4 does not have
]
COUNT = int(os.environ.get("OCTET_TEST_TEXTS", 1_000_000))
SEED = int(os.environ.get("OCTET_TEST_SEED", 0))
SHOWN = 5


def require(environment: str, name: str) -> tuple[Path, Path]:
    """Returns the interpreter of an environment and the folder of a tokenizer. Skips the test if one is missing."""
    python, folder = default_home().python(environment), folder_of(name)
    if not python.exists():
        pytest.skip(f"{python} is missing; run: python -m benchmarks.setup_peers --making")
    if not folder.is_dir():
        pytest.skip(f"{folder} is missing; run: python -m benchmarks.models.tokenizers")
    return python, folder


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("environment", "name"), CASES)
def test_tokens_equal_auto_tokenizers(environment: str, name: str) -> None:
    python, folder = require(environment, name)
    local = Local(folder)
    found = differences(local, python, folder, SEED, COUNT)
    shown = list(islice(found, SHOWN))
    unequal = len(shown) + sum(1 for _ in found)
    note_tokens(name, local.model_type, RELEASES[environment], COUNT, unequal)
    if (environment, name) not in REBUILT:
        assert unequal == 0, "\n".join(map(str, shown))


def test_a_text_depends_on_its_seed_and_number_only() -> None:
    assert text(1, 7) == text(1, 7)
    assert len({text(seed, number) for seed in range(5) for number in range(20)}) > 90


def test_lines_have_at_most_a_megabyte() -> None:
    sizes = [len(text(seed, LONG_EVERY - 1).encode()) for seed in range(3)]
    assert max(sizes) <= LINE_BYTES
    assert max(sizes) > LINE_BYTES - 4

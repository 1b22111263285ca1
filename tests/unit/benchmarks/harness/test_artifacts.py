import pytest

from benchmarks.harness.artifacts import reason


@pytest.mark.parametrize(
    ("stdout", "stderr", "expected"),
    [
        (
            '{"error": {"code": "unsupported", "message": "no such operator"}}',
            "✗ import\n",
            "unsupported: no such operator",
        ),
        ("", "first\nKilled\n", "Killed"),
        ("", "", "octet compile failed without a message"),
    ],
)
def test_a_model_that_was_not_compiled_has_a_reason(stdout: str, stderr: str, expected: str) -> None:
    assert reason(stdout, stderr) == expected

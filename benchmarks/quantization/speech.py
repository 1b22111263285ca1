"""Spoken sentences for Silero's voice activity detector. Runs in the peers' environment `quantization`, which has onnx:

python speech.py FLOAT OUTPUT.onnx OUTPUT.npz WINDOWS

The network's inputs are a window of samples and the state after the previous window. OUTPUT.onnx has both as one row,
so that every tool can quantize it by independent rows. OUTPUT.npz has such rows: `windows`, and `calibration` of other
sentences and voices, each with the state of the float network. espeak-ng (Debian's package) speaks the sentences,
between pauses, in noise of several levels.
"""

from __future__ import annotations

import io
import subprocess
import sys
import wave
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

Array = Any
WINDOW, CONTEXT, STATE = 512, 64, (2, 1, 128)
_RATE = 16_000
_PAUSE_S, _SPOKEN = 1.5, 0.7
_NOISE = (0.001, 0.005, 0.02, 0.05)
_CALIBRATING = 256
_SENTENCES = (
    "It was a bright cold day in April, and the clocks were striking thirteen.",
    "All happy families are alike; every unhappy family is unhappy in its own way.",
    "Call me Ishmael. Some years ago, never mind how long precisely, I thought I would sail about a little.",
    "The quick brown fox jumps over the lazy dog, and then it rests for a while.",
)
_VOICES = ("en", "en-us", "en-gb-scotland", "de", "fr", "es")


def of_one_row(model: str, output: str) -> None:
    """Writes the network of the file `model` to `output`, with its two inputs joined into one row of the size
    `CONTEXT + WINDOW + state`."""
    import onnx  # type: ignore[import-not-found]
    from onnx import helper, numpy_helper

    loaded = onnx.load(model)
    window, state = (each.name for each in loaded.graph.input)
    length = CONTEXT + WINDOW
    constants = {
        "row_zero": [0],
        "row_middle": [length],
        "row_end": [length + int(np.prod(STATE))],
        "row_axis": [1],
        "row_shape": list(STATE),
    }
    named = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in constants.items()]
    loaded.graph.initializer.extend(named)
    nodes = [
        helper.make_node("Slice", ["row", "row_zero", "row_middle", "row_axis"], [window]),
        helper.make_node("Slice", ["row", "row_middle", "row_end", "row_axis"], ["row_state"]),
        helper.make_node("Reshape", ["row_state", "row_shape"], [state]),
        *loaded.graph.node,
    ]
    del loaded.graph.node[:], loaded.graph.input[:]
    loaded.graph.node.extend(nodes)
    row = helper.make_tensor_value_info("row", onnx.TensorProto.FLOAT, [1, constants["row_end"][0]])
    loaded.graph.input.append(row)
    onnx.save(loaded, output)


def rows(model: str, sound: Array) -> Array:
    """Returns the network's inputs for each window of a recording, `[windows, …]`."""
    import onnxruntime

    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    state, before, made = np.zeros(STATE, np.float32), np.zeros(CONTEXT, np.float32), []
    for start in range(0, len(sound) - WINDOW, WINDOW):
        window = sound[start : start + WINDOW]
        row = np.concatenate([before, window, state.reshape(-1)]).astype(np.float32)
        made.append(row)
        _, state = session.run(None, {"row": row[None]})
        before = window[-CONTEXT:]
    return np.stack(made)


def speak(text: str, voice: str, words_per_minute: int) -> Array:
    """Returns float32 samples at `_RATE`."""
    command = ["espeak-ng", "-v", voice, "-s", str(words_per_minute), "--stdout", text]
    with wave.open(io.BytesIO(subprocess.run(command, check=True, capture_output=True).stdout)) as file:
        rate = file.getframerate()
        samples = np.frombuffer(file.readframes(1 << 24), np.int16) / 32768
    positions = np.arange(int(len(samples) * _RATE / rate)) * rate / _RATE
    return np.interp(positions, np.arange(len(samples)), samples).astype(np.float32)


def recording(sentences: Sequence[str], voices: Sequence[str], windows: int, seed: int) -> Array:
    """Returns sentences one after the other, each after a pause, until they fill the given number of windows."""
    rng, parts, length = np.random.default_rng(seed), [], 0
    while length < (windows + 1) * WINDOW:
        voice = speak(str(rng.choice(sentences)), str(rng.choice(voices)), int(rng.integers(130, 200)))
        part = np.concatenate([np.zeros(int(_RATE * _PAUSE_S), np.float32), _SPOKEN * voice])
        parts.append(part + rng.choice(_NOISE) * rng.standard_normal(len(part)).astype(np.float32))
        length += len(part)
    return np.concatenate(parts)[: (windows + 1) * WINDOW]


def main(model: str, output: str, data: str, windows: int) -> None:
    of_one_row(model, output)
    rng = np.random.default_rng(15)
    others = rows(output, recording(_SENTENCES[2:], _VOICES[1::2], 4 * _CALIBRATING, 14))
    test_rows = rows(output, recording(_SENTENCES[:2], _VOICES[::2], windows, 13))
    Path(data).parent.mkdir(parents=True, exist_ok=True)
    np.savez(data, windows=test_rows, calibration=others[rng.permutation(len(others))[:_CALIBRATING]])


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))

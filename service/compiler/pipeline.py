"""The whole road: a model file in, a verified artifact out.

Every step that reads the upload, or what was made of it, is a sandboxed child with the files of that step only. This
process starts them, moves files between them, and writes the result to the store; it loads no TVM.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from service.cache import Descriptor, Manifest, OciLayout
from service.compiler import toolchain
from service.compiler.checking_roles import REFERENCE_FILE
from service.compiler.link import link
from service.compiler.sandbox import Access, Limits, run_child
from service.core.artifact import (
    ARTIFACT_TYPE,
    CONFIG_MEDIA_TYPE,
    CONSTANTS_MEDIA_TYPE,
    FORMAT_ANNOTATION,
    LIBRARY_MEDIA_TYPE,
    NUMERICS_ANNOTATION,
    SOURCE_ANNOTATION,
    TARGET_ANNOTATION,
    ArtifactConfig,
    Constant,
    Report,
)
from service.core.build import Progress, Stage
from service.core.digest import Digest, canonical_json
from service.core.errors import BuildFailed, VerificationFailed
from service.core.settings import Settings
from service.core.signature import ModelSignature
from service.core.target import Target, detect_host

SAMPLES = 8
MODULE_FILE, CONSTANTS_FILE, EXPECTED_FILE, LIBRARY_FILE = "module.json", "constants.bin", "expected.npz", "library.so"


@dataclass(frozen=True)
class CompileRequest:
    """One build. `source` is a local file that hashes to `source_digest`."""

    source: Path
    source_digest: Digest
    target: Target
    numerics: str
    options: Mapping[str, Any] = field(default_factory=dict)


def compile_model(
    request: CompileRequest, layout: OciLayout, scratch: Path, progress: Progress, settings: Settings
) -> Digest:
    """Compiles, links, verifies and publishes one model.

    Args:
        layout: where the artifact and its reports go.
        scratch: an empty directory on the store's file system; the caller removes it.

    Returns:
        The digest of the artifact's manifest.

    Raises:
        OctetError: the model cannot be compiled, or the compiled model is wrong; says at which stage and operator.
        BuildCanceled: `progress` said so.
    """
    # The children work elsewhere, so no path may be relative.
    request = replace(request, source=request.source.absolute())
    steps = _Steps(request, scratch.absolute(), progress, settings)
    imported = steps.run("import", {"source": str(request.source)}, readable=[request.source])
    signature = ModelSignature.from_json(imported["signature"])
    kernels = settings.kernels_dir.absolute()
    kernels.mkdir(parents=True, exist_ok=True)
    built = steps.run(
        "build",
        {
            "module": str(steps.output("import", MODULE_FILE)),
            "kernels": str(kernels),
            "target": request.target.name,
            "numerics": request.numerics,
            "signature": signature.to_json(),
            "samples": SAMPLES,
        },
        readable=[steps.output("import", MODULE_FILE)],
        writable=[kernels],
    )
    library = steps.link([steps.output("build", name) for name in built["objects"]])
    config = ArtifactConfig(
        signature,
        request.target.name,
        request.numerics,
        "main",
        tuple(Constant(c["dtype"], tuple(c["shape"]), c["offset_bytes"]) for c in built["constants"]),
        toolchain.abi(),
    )
    numerics = steps.verify(config, library, built)
    progress.stage(Stage.PUBLISH)
    vectors = steps.output("build", EXPECTED_FILE).read_bytes()
    artifact = _publish(layout, config, library, steps.output("build", CONSTANTS_FILE), request, imported["format"])
    reports = {
        Report.NUMERICS: canonical_json(numerics),
        Report.COVERAGE: canonical_json(built["coverage"]),
        Report.PROVENANCE: canonical_json({**steps.inputs(), "stages_s": steps.times_s}),
        Report.VECTORS: vectors,
    }
    for kind, data in reports.items():
        layout.attach(artifact, kind, data)
    return artifact


class _Steps:
    """The steps of one build: each has a directory of its own under `scratch`, and is timed."""

    def __init__(self, request: CompileRequest, scratch: Path, progress: Progress, settings: Settings) -> None:
        self.request, self.scratch, self.progress, self.settings = request, scratch, progress, settings
        self.times_s: dict[str, float] = {}
        self._stage, self._fraction = Stage.IMPORT, 0.0
        self._deadline_s = time.monotonic() + settings.build_time_limit_s

    def inputs(self) -> dict[str, Any]:
        request = self.request
        return toolchain.build_inputs(
            request.source_digest, request.target, request.numerics, request.options
        ).to_json()

    def output(self, step: str, name: str) -> Path:
        """A file that `step` wrote. Its name came from the child: it may not lead elsewhere.

        Raises:
            BuildFailed: there is no such file.
        """
        path = self.scratch / step / name
        if Path(name).name != name or path.is_symlink() or not path.is_file():
            raise BuildFailed(f"the {step} process did not write {Path(name).name!r}", stage=self._stage)
        return path

    def run(self, role: str, request: Mapping[str, Any], readable: list[Path], writable: Sequence[Path] = ()) -> Any:
        """Runs one child in a new directory of its own."""
        directory = self.scratch / role
        directory.mkdir()
        started_s = time.monotonic()
        result = run_child(
            role,
            request,
            access=Access(readable=tuple(readable), writable=(directory, *writable)),
            limits=self._limits(),
            on_message=self._relay,
            poll=self._poll,
            env={"TVM_USE_RUNTIME_LIB": "1"} if role == "verify" else {},
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )
        self.times_s[role] = round(time.monotonic() - started_s, 4)
        return result

    def link(self, objects: list[Path]) -> Path:
        self._enter(Stage.LINK)
        directory = self.scratch / "link"
        directory.mkdir()
        started_s = time.monotonic()
        library = directory / LIBRARY_FILE
        link(
            objects,
            library,
            self.request.target,
            poll=self._poll,
            allow_unsandboxed=self.settings.allow_unsandboxed,
        )
        self.times_s["link"] = round(time.monotonic() - started_s, 4)
        return library

    def verify(self, config: ArtifactConfig, library: Path, built: Mapping[str, Any]) -> dict[str, Any]:
        """Holds the artifact to the oracle, and to the reference runtime where that is installed.

        Raises:
            VerificationFailed: it does not give the oracle's answers.
        """
        self._enter(Stage.VERIFY)
        report: dict[str, Any] = {
            "mode": config.numerics,
            "reference": built["reference"],
            "formulas": built["formulas"],
            "seed": 0,
        }
        missing = self.request.target.missing_on(detect_host())
        if missing:
            reason = f"this host lacks {', '.join(sorted(missing))}"
            self.progress.log(f"not verified: {reason}; run `octet verify` on the target")
            return {**report, "verified": False, "reason": reason, "checks": []}
        vectors = [("the oracle: NumPy, int64", self.output("build", EXPECTED_FILE)), *self._reference(config)]
        constants = self.output("build", CONSTANTS_FILE)
        paths = [path for _, path in vectors]
        outcome = self.run(
            "verify",
            {
                "config": config.to_json(),
                "library": str(library),
                "constants": str(constants),
                "vectors": [[name, str(path)] for name, path in vectors],
            },
            readable=[library, constants, *paths],
        )
        if outcome["verified"] is not True:
            raise VerificationFailed(
                f"the compiled model does not compute what {config.numerics} defines: {json.dumps(outcome['checks'])}",
                stage=Stage.VERIFY,
                hint="this is a defect of the compiler; please report the model",
            )
        return {**report, **outcome}

    def _reference(self, config: ArtifactConfig) -> list[tuple[str, Path]]:
        version = toolchain.reference_version()
        if version is None:
            self.progress.log("LiteRT is not installed here: verified against the oracle only")
            return []
        request = {
            "source": str(self.request.source),
            "numerics": config.numerics,
            "signature": config.signature.to_json(),
            "samples": SAMPLES,
        }
        kernels = "BUILTIN_REF" if config.numerics == "litert-reference" else "default delegate"
        try:
            self.run("reference", request, readable=[self.request.source])
        except BuildFailed as error:
            self.progress.log(f"LiteRT could not run the model, so it is no witness: {error.message}")
            return []
        return [(f"LiteRT {version}, {kernels}", self.output("reference", REFERENCE_FILE))]

    def _limits(self) -> Limits:
        left_s = max(1.0, self._deadline_s - time.monotonic())
        memory = self.settings.build_memory_limit_bytes
        return Limits(wall_s=left_s, cpu_s=2 * left_s, memory_bytes=memory, file_bytes=memory)

    def _enter(self, stage: Stage, fraction: float = 0.0) -> None:
        self._stage, self._fraction = stage, fraction
        self.progress.stage(stage, fraction)

    def _relay(self, message: Mapping[str, Any]) -> None:
        if "stage" in message:
            self._enter(Stage(message["stage"]), float(message.get("fraction", 0.0)))
        elif "log" in message:
            self.progress.log(str(message["log"]))

    def _poll(self) -> None:
        self.progress.stage(self._stage, self._fraction)


def _publish(
    layout: OciLayout, config: ArtifactConfig, library: Path, constants: Path, request: CompileRequest, format_: str
) -> Digest:
    """Writes config, layers and manifest; the digest depends on their bytes and on what they were made of."""
    manifest = Manifest(
        artifact_type=ARTIFACT_TYPE,
        config=layout.put_blob_descriptor(CONFIG_MEDIA_TYPE, canonical_json(config.to_json())),
        layers=(
            layout.put_blob_descriptor(LIBRARY_MEDIA_TYPE, library),
            layout.put_blob_descriptor(CONSTANTS_MEDIA_TYPE, constants),
        ),
        annotations={
            SOURCE_ANNOTATION: request.source_digest,
            TARGET_ANNOTATION: config.target,
            NUMERICS_ANNOTATION: config.numerics,
            FORMAT_ANNOTATION: format_,
        },
        subject=None,
    )
    descriptor: Descriptor = layout.put_manifest(manifest)
    return descriptor.digest

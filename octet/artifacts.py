"""Compiles model files to artifacts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from octet._work import Stages, TemporaryFolder
from octet.models import Model, load_from
from service.core.builds.dialects import added
from service.core.builds.fixed import check_fixed, with_fixed
from service.core.builds.options import parse_open_shapes, with_acceptance, with_sizes
from service.core.settings import load_settings
from service.core.verification.agreement import is_different


def compile(
    source: str | PathLike[str],
    output: str | Path | None = None,
    *,
    target: str = "host",
    numerics: str | None = None,
    batch: int = 1,
    input_shape: str = "",
    fix: Mapping[str, float | Sequence[float]] | None = None,
    member: str = "",
    signature: str = "",
    accept_differences: bool = False,
    dialects: Sequence[str | Path] = (),
    sandboxed: bool = True,
    on_stage: Callable[[str], None] | None = None,
) -> Artifact:
    """Compiles a model file, and checks the result bit for bit against the reference runtime.

    Args:
        source: a .tflite, .onnx, .pt or .pt2 file, or a folder or archive with the files of an MXNet or OpenVINO model;
            or what `octet.quantize` returned.
        output: the folder to write, an OCI image layout; by default a temporary one, which is deleted together with
            the artifact and the models that were loaded from it.
        target: a target that `octet targets` lists; `host` is the best one of this machine.
        numerics: the numerics mode; by default that of the framework that wrote the file.
        batch: the number of samples in a call.
        input_shape: the shapes of inputs whose shapes the file leaves open, as `octet compile --input-shape` takes
            them: `x=1,3,224,224`, or `1x[16,32,64]` for several sizes.
        fix: the values of inputs that become constants, by name, such as `{"sr": 16000}`: a number, which fills an
            input of any shape, or a sequence of all elements. Calls then do not pass these inputs.
        member: the model in a bundle of TFLite models (.task or .litertlm); by default the only one.
        signature: the entry point of a TFLite file with several signatures; by default the first one.
        accept_differences: true to return a model whose outputs differ from those of the reference runtime.
        dialects: files that define operators, patterns, passes or formats, or names of entry points, besides those in
            `OCTET_DIALECTS` (docs/how-to/dialects.md). Their code runs, so name only files that you trust. What other
            threads compile meanwhile is compiled with them too.
        sandboxed: false to compile even if this kernel cannot isolate the compiler's processes. Do so only with files
            that you trust.
        on_stage: called with the name of each stage of the build when it begins.

    Raises:
        InvalidInput: an option is malformed, or a dialect cannot be found or failed.
        UnsupportedFormat, UnsupportedOperator: Octet does not compile the file; the error names the operators.
        MalformedModel: the file is damaged.
        FileNotFoundError: the file does not exist.
        Different: the outputs differ from those of the reference runtime.
    """
    from service.compiler.build.local import compile_to
    from service.compiler.importers.uploads import upload_of

    folder = TemporaryFolder() if output is None else None
    path = folder.path if folder is not None else Path(output or "")
    settings = load_settings({"allow_unsandboxed": not sandboxed or None})
    shapes, fixed = parse_open_shapes(input_shape), check_fixed(fix or {})
    progress = Stages(on_stage)
    with added(dialects), upload_of(Path(source), member, signature) as upload:
        requested = [
            with_acceptance(with_fixed(options, fixed), accept_differences) for options in with_sizes([batch], shapes)
        ]
        built = [compile_to(upload, path, target, numerics, options, settings, progress) for options in requested]
    digest, reports = built[0]
    return Artifact(path, str(digest), reports, folder)


class Artifact:
    """A compiled model in a folder.

    Attributes:
        path: the folder, an OCI image layout.
        digest: the digest that identifies the artifact. The same file, target, mode, options and compiler give the same
            digest.
        reports: the reports of the build by name: `numerics`, `coverage` and, if the model ran here, `profile`.
    """

    def __init__(self, path: Path, digest: str, reports: dict[str, Any], folder: object = None) -> None:
        self.path, self.digest, self.reports = path, digest, reports
        self._folder = folder  # a temporary folder, which exists as long as this object

    @property
    def is_exact(self) -> bool:
        """True if the outputs equal those of the reference runtime, or differ by documented deviations only."""
        return not is_different(self.reports.get("numerics", {}))

    def load(self, *, threads: int = 0) -> Model:
        """Loads the model. The arguments and errors are those of `octet.load`."""
        return load_from(self.path, threads, self._folder)

    def __repr__(self) -> str:
        summary = self.reports.get("numerics", {}).get("summary", "not verified")
        return f"<octet.Artifact {self.digest[:19]} in {self.path}: {summary}>"

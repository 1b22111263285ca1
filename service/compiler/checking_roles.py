"""What the children do that check an artifact. They load TVM's runtime at most, never the compiler.

`reference` asks LiteRT itself; `verify` loads the linked library, which is native code that a hostile model shaped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from service.compiler.sandbox import Report
from service.core.artifact import ArtifactConfig
from service.core.build import Stage
from service.core.numerics import LITERT_REFERENCE
from service.core.signature import ModelSignature
from service.core.vectors import sample_inputs

REFERENCE_FILE = "reference.npz"


def reference_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """The source model in LiteRT -> its answers to the generated inputs, in the working directory."""
    from ai_edge_litert.interpreter import Interpreter, OpResolverType

    report.at(stage=Stage.VERIFY)
    kind = OpResolverType.BUILTIN_REF if request["numerics"] == LITERT_REFERENCE else OpResolverType.AUTO
    interpreter = Interpreter(request["source"], num_threads=1, experimental_op_resolver_type=kind)
    interpreter.allocate_tensors()
    inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
    answers = {}
    for index, sample in enumerate(sample_inputs(ModelSignature.from_json(request["signature"]), request["samples"])):
        for detail, value in zip(inputs, sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        for position, detail in enumerate(outputs):
            answers[f"{index}.{position}"] = interpreter.get_tensor(detail["index"])
    np.savez_compressed(REFERENCE_FILE, **answers)
    return {}


def verify_role(request: Mapping[str, Any], report: Report) -> Mapping[str, Any]:
    """The linked artifact against expected answers: `runtime.compare`'s report."""
    from service import runtime

    report.at(stage=Stage.VERIFY)
    config = ArtifactConfig.from_json(request["config"])
    model = runtime.load_files(config, Path(request["library"]), Path(request["constants"]))
    return runtime.compare(model, [(name, Path(path).read_bytes()) for name, path in request["vectors"]])

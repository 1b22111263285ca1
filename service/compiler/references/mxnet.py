"""Runs MXNet models in MXNet. This module is loaded in the environment of MXNet, which has neither TVM nor this
project's other requirements.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from service.compiler.importers.mxnet.package import unpack
from service.compiler.references import Answer
from service.core.models.arrays import Array


def open_session(source: str, options: Mapping[str, str]) -> Answer:
    """Loads the model in the archive `source`. The model runs on one thread.

    Args:
        options: environment variables that MXNet reads when it is imported.
    """
    os.environ.update(options)
    import mxnet

    symbol_file, parameters_file = Path.cwd() / "model-symbol.json", Path.cwd() / "model-0000.params"
    symbol_data, parameters_data = unpack(Path(source).read_bytes())
    symbol_file.write_bytes(symbol_data)
    parameters_file.write_bytes(parameters_data)
    symbol, arguments, auxiliary = mxnet.model.load_checkpoint(str(Path.cwd() / "model"), 0)
    # The labels of a SoftmaxOutput are inputs too. They come after the input that they belong to, and inference does
    # not read them.
    inputs = [name for name in symbol.list_inputs() if name not in arguments and name not in auxiliary]
    types = {name: value.dtype for name, value in arguments.items()}

    def answer(sample: Sequence[Array]) -> list[Array]:
        given = dict(zip(inputs, sample, strict=False))
        shapes = {name: value.shape for name, value in given.items()}
        # MXNet does not infer all types of quantized models.
        of_inputs = {name: value.dtype for name, value in given.items()}
        executor = symbol.simple_bind(mxnet.cpu(), grad_req="null", type_dict=types | of_inputs, **shapes)
        executor.copy_params_from(arguments, auxiliary, allow_extra_params=True)
        for name, value in given.items():
            executor.arg_dict[name][:] = value
        return [output.asnumpy() for output in executor.forward(is_train=False)]

    return answer

"""ONNX Runtime's CPU provider at its fastest settings: all graph optimizations, spinning threads, no denormals."""

from __future__ import annotations

import numpy as np
import onnxruntime

from benchmarks.harness.frameworks import Job, Loaded, random_input


def load(job: Job) -> Loaded:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "1")
    options.add_session_config_entry("session.set_denormal_as_zero", "1")
    options.add_free_dimension_override_by_name("N", job.batch)
    session = onnxruntime.InferenceSession(job.path, options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    given = job.given()
    for index, wanted in enumerate(session.get_inputs()):
        shape = tuple(size if isinstance(size, int) else job.batch for size in wanted.shape)
        value = given[wanted.name] if given else random_input(shape, np.dtype(np.float32), index)
        binding.bind_ortvalue_input(wanted.name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    run, raw, run_options = session._sess.run_with_iobinding, binding._iobinding, onnxruntime.RunOptions()
    return Loaded(lambda: run(raw, run_options), binding.copy_outputs_to_cpu, {"version": onnxruntime.__version__})

"""The compiler: reads a model file and writes an artifact. It uses no HTTP, no SQL and no queues.

`build.pipeline.compile_model` runs the whole pipeline. Each step that reads an upload or loads TVM runs in a sandboxed
child process. The modules that the API may import (`build.artifact_archive`, `importers.detect`, `lowering.toolchain`,
`sandbox`) do not load TVM.

A package imports only packages below it in this list:

- `build`: orchestrates a build in the parent process, and stores its results.
- `children`: the code that runs inside sandboxed child processes.
- `references`: runs the runtimes that a build is compared with, such as LiteRT and ONNX Runtime.
- `lowering`: the passes that turn an imported model into tensor programs, and the code generation.
- `select`: chooses a hand-written kernel for each operator.
- `kernels`: the hand-written kernels, for SIMD instruction sets and for GPUs.
- `importers`: read model files of each format into QNN operators.
- `qnn`: the operators of quantized models, their types, formulas and passes.
- `messages`: the messages between the parent process and its children, and the files that they exchange.
- `sandbox`: starts child processes that cannot reach files, programs or the network.
- `targets`: the settings that TVM and LLVM need for each target.
- `locating`: adds the operator and the tensor to errors. All packages above may import it.
"""

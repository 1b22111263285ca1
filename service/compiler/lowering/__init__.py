"""Lowering: turns an imported model into tensor programs, object files and a linked library.

- `pass_order`: the names and the order of the passes. It does not load TVM.
- `passes`: the passes, and the pipeline that runs them.
- `plain`: lowers the plain Relax operators for which TVM's own programs would lose NaN.
- `schedule`: the default schedule, which makes a program parallel and vectorized for a CPU.
- `codegen`: the TVM passes after scheduling, and the object file of the scheduled programs.
- `constants`: moves constants out of the code into one file.
- `arena`: plans the memory of activations.
- `call_plan`: the list of calls that replaces the model's entry function.
- `link`: links objects to a shared library.
- `toolchain`: the versions and digests that determine the result of a build, in addition to the model.
- `gpu`: generates CUDA C++ for tensor programs that no hand-written kernel computes.
"""

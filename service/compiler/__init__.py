"""The compiler: a model file in, an artifact out. Knows nothing of HTTP, SQL or queues.

`pipeline.compile_model` is the whole pipeline in one function. Everything that touches an upload or loads the compiler
library runs in a sandboxed child (`sandbox`, `child`); the modules that the API may import (`toolchain`,
`importers.detect`) load no TVM.
"""

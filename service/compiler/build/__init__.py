"""Builds: the steps that turn a model file into a verified artifact, and the stores of their results.

This code runs in the parent process. It starts a sandboxed child for each step that reads an upload, moves files
between the children, and loads no TVM.

- `pipeline`: the whole build, from a model file to an artifact in the store.
- `steps`: one method for each step, which starts a child that may access only the files of that step.
- `background`: runs children beside the main thread of a build.
- `answers`: gets the expected outputs from the oracle (Octet's own model interpreter) and from the source framework.
- `expected`: the files that contain these expected outputs.
- `padding`: checks whether the artifact of one input size may also serve shorter inputs, padded with zeros.
- `tuning`: measures other tile sizes, and uses those that are faster.
- `tile_store`: the measured tile sizes.
- `object_cache`: the object files of kernels, shared by all builds.
- `results`: a cache of the results of children.
- `inspection`: reads the facts and the graph of a model file without compiling it.
- `folders`: reads the folder of a published model.
- `received`: verifies and publishes artifacts that were compiled elsewhere.
- `artifact_archive`: reads the documents in an artifact archive.
"""

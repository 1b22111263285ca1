"""16-bit real values (float16 and bfloat16) in ONNX graphs.

`carrying` rewrites a graph so that all of its real values are float32. It follows ONNX Runtime's CPU provider, which
has few operators on float16: it computes the others in float32, between casts. `kernels` lists the operators that
compute on float16, `functions` those that ONNX Runtime replaces by their definitions, and `types` infers the types of
tensors.
"""

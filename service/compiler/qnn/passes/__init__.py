"""Passes that simplify the QNN graph before kernels are selected. Each file contains one pass.

No pass changes a bit of any output, in any mode: the outputs equal the oracle's results for the imported module.
"""

from service.compiler.qnn.passes.simplify import Simplified, run_pass, simplify

__all__ = ["Simplified", "run_pass", "simplify"]

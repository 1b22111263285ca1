"""Passes that simplify the QNN graph before kernels are selected, one file for each.

No pass changes any output by a bit, in any mode: the reference is the oracle's result for the module as it was
imported.
"""

from service.compiler.qnn.passes.simplify import Simplified, run_pass, simplify

__all__ = ["Simplified", "run_pass", "simplify"]

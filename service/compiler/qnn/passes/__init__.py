"""Passes that simplify the QNN graph before kernels are selected; each is a file.

None changes an output by a bit, in any mode: the oracle answers for the module as it was imported.
"""

from service.compiler.qnn.passes.simplify import Simplified, run_pass, simplify

__all__ = ["Simplified", "run_pass", "simplify"]

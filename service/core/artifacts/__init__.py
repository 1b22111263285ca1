"""Artifacts: the contract between the compiler, which writes them, and the runtime, which reads them."""

"""Select: which operators a kernel computes, how the tensors between them lie in memory, and the calls themselves."""

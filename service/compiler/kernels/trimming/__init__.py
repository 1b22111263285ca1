"""Makes kernels leave out the elements beyond the length of the input: see `trim.trimmed`."""

"""What ARM's kernels should cost on cores that are not here: the hot loops, in a simulator of their pipelines."""

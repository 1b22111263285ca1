"""Processes and threads that do the work: compile workers, and the inference half of the serving process."""

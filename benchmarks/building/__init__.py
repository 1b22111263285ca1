"""The time of a build, of its steps, and of a cached one."""

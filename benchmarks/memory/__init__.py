"""The memory of models, processes and installed packages."""

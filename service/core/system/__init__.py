"""The operating system: processors, GPUs, threads, memory, logs, and the service manager."""

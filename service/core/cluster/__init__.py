"""Clusters: the roles of processes, their queues, and the records of calls that run and of calls that crashed."""

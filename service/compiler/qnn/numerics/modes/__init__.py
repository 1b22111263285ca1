"""The tables of the modes, one file for each framework."""

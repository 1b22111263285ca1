"""The tables and the plot of a serving run."""

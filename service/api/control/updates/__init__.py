"""The stream of changes that the page shows: one stream of server-sent events for models, builds and load.

`snapshot` reads the state, `changes` compares two states, and `stream` sends the differences.
"""

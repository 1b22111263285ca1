"""The domain: values that all other packages use. It imports no other package of `service`.

`errors`, `settings`, `target` and `digest` are used everywhere. The folders are subjects.
"""

"""The domain: values that all other packages use. It imports no other package of `service`.

`errors`, `settings`, `target` and `digest` are used everywhere. Each folder contains the values of one subject.
"""

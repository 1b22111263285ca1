"""What every test of the project shares."""

import os

from hypothesis import settings

# The same examples on every run, so that a change is judged by what it changed; `make test-all` draws new ones. Without
# a deadline: an example takes as long as the machine's other work lets it.
settings.register_profile("same", derandomize=True, database=None, deadline=None)
settings.register_profile("fresh", deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "same"))

os.environ.setdefault("OCTET_BUILD_NICE", "0")  # tests wait for their builds, and other tests run beside them

"""The fused scale of an epilogue equals the oracle."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from service.compiler.kernels.arithmetic.epilogue import Bounds
from tests.support.examples import examples
from tests.support.fused_scales import RELU, SIGNED, Channels, computed

EXAMPLES = settings(max_examples=examples(40), deadline=None)


OUTS = st.sampled_from([RELU, SIGNED, Bounds(0, 0, 200), Bounds(128, 20, 225), Bounds(255), Bounds(7)])


@EXAMPLES
@given(st.integers(0, 10**6), st.integers(-12, 0), OUTS, st.sampled_from([1 << 10, 1 << 20, 1 << 26]), st.data())
def test_a_fused_scale_equals_the_oracle(seed: int, shift: int, out: Bounds, reach: int, data: st.DataObject) -> None:
    twice, stored = data.draw(st.booleans()), data.draw(st.booleans())
    channels = Channels.drawn(seed, (shift - 1, shift), out, reach=reach, twice=twice)
    fused = channels.fused(stored=stored)
    if fused is None:
        return
    assert stored or not fused.centred
    for channel in (0, 7, *(int(np.argmax(wrong != right)) for wrong, right in fused.exceptions)):
        accumulators = channels.telling(channel)
        found = [computed(fused, channel, int(each), out) for each in accumulators]
        np.testing.assert_array_equal(found, channels.expected(channel, accumulators))

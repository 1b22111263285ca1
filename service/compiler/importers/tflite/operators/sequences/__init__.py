"""Recurrent layers of real values, whose weights are float32 or int8: LSTM, RNN and SVDF, unrolled into their steps.

LiteRT's hybrid kernels quantize the rows that they multiply with int8 weights, as its hybrid dense layers do.
Everything else is computed in float32.
"""

from __future__ import annotations

from service.compiler.importers.tflite.operators.rule import FLOAT, Rule
from service.compiler.importers.tflite.operators.sequences import basic, lstm, rnn

RULES: dict[str, Rule] = {
    "BIDIRECTIONAL_SEQUENCE_LSTM": Rule(lstm.bidirectional, (39, 48), reads=FLOAT, writes=FLOAT, outputs=2),
    "BIDIRECTIONAL_SEQUENCE_RNN": Rule(rnn.bidirectional, (9, 12), reads=FLOAT, writes=FLOAT, outputs=2),
    "LSTM": Rule(basic.lstm, (5, 24), reads=FLOAT, writes=FLOAT, outputs=4),
    "RNN": Rule(rnn.step, (5, 5), reads=FLOAT, writes=FLOAT),
    "UNIDIRECTIONAL_SEQUENCE_RNN": Rule(rnn.sequence, (5, 5), reads=FLOAT, writes=FLOAT),
}

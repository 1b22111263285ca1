"""Softsign for ONNX, TFLite and PyTorch, from one formula.

octet dialect prove softsign.py
octet compile --dialect softsign.py model.onnx -o compiled
"""

from octet import qnn

softsigns = qnn.Dialect("softsigns")


@softsigns.real(onnx="Softsign", tflite="CUSTOM(FlexSoftsign)", torch="aten::softsign")
def softsign(x):
    """x / (1 + |x|)"""
    return x / (1 + abs(x))

"""The QNN dialect: quantized operators on TVM's Relax, their types, and what they compute.

Importing this package registers the `relax.qnn.*` operators with TVM and makes `R.qnn.*` parse in TVMScript.
"""

"""TFLite files of one Keras layer or TensorFlow operator each, as today's converters write them: full-integer int8,
16x8, dynamic range, float16, and the recipes of AI Edge Quantizer.
"""

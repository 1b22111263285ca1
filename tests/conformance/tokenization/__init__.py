"""Compares the tokens that the preprocessing process computes with those of transformers' AutoTokenizer, on random
texts.
"""

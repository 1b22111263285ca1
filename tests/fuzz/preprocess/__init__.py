"""A fuzzer of the preprocessing process, and of the reader of published folders: hostile tokenizers, texts, pictures
and configurations.
"""

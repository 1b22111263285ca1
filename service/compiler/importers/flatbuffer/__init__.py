"""FlatBuffers: a verifier that checks a file before anything reads it, and a reader of its tables."""

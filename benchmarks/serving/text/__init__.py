"""Embeddings of texts, beside servers of embeddings."""

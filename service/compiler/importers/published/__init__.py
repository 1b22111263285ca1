"""Reads models in the layouts in which people publish them: those of Hugging Face, Optimum, sentence-transformers and
transformers.js.

A folder contains the model in one or several variants (`variants`), and JSON files that define its task and labels
(`configuration`), its processing of text (`texts`) and of pictures (`pictures`). `reading` combines them. All files may
be hostile: their number, sizes and nesting are bounded, and symbolic links that leave the folder are refused (`files`).
Pickles are never opened.
"""

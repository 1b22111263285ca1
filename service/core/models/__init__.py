"""Models as clients see them: names and versions, aliases, signatures, shapes and metadata."""

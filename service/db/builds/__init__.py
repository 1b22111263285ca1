"""The builds table: as a cache of results and a history (`store`), and as a queue for workers (`queue`)."""

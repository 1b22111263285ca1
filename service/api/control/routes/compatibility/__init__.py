"""`/v1`: routes with the forms of the APIs of other servers."""

"""The clients that send load: generators, and the raw protocols under them."""

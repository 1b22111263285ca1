"""Programs for people who work on the compiler. They are not installed with Octet."""

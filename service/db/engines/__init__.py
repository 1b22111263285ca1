"""The database engines, SQLite and PostgreSQL, and their notifications."""

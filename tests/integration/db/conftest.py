from tests.support.databases import database, database_url, postgres_schema, postgres_server

__all__ = ["database", "database_url", "postgres_schema", "postgres_server"]

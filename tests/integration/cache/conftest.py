from tests.support.buckets import s3_server, s3_url

__all__ = ["s3_server", "s3_url"]

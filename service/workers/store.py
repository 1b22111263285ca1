"""Opens the store that the settings name."""

from __future__ import annotations

from service.cache import OciLayout
from service.core.errors import Unsupported
from service.core.settings import Settings
from service.db import Database


def open_store(settings: Settings, database: Database) -> OciLayout:
    """Opens the store's folder, or the bucket with a cache in that folder. A bucket is locked through the database, if
    the database offers a lock.

    Raises:
        StoreUnreachable: the bucket does not respond, and the cache is empty.
        Unsupported: the library for buckets is not installed.
        OctetError: as `OciLayout`.
    """
    if settings.store_url is None:
        return OciLayout(settings.store_dir)
    try:
        from service.cache.objects import ObjectBucket
    except ModuleNotFoundError as error:
        raise Unsupported(
            f"a bucket needs {error.name}, which is not installed", hint="pip install 'octet-serve[server,objects]'"
        ) from error
    bucket = ObjectBucket(settings.store_url, settings.store_timeout_s)
    return OciLayout.in_bucket(bucket, settings.store_dir, settings.store_cache_bytes, database.lock)

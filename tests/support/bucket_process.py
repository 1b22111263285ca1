"""`python -m tests.support.bucket_process URL CACHE DIGEST`: reads a blob, and prints how often it was fetched."""

from __future__ import annotations

import sys
from pathlib import Path

from service.cache.objects import ObjectBucket
from service.cache.remote import BucketBlobStore
from service.core.digest import parse_digest
from tests.support.buckets import TestedBucket


def main() -> None:
    url, cache, digest = sys.argv[1:]
    bucket = TestedBucket(ObjectBucket(url, timeout_s=60.0))
    store = BucketBlobStore(bucket, Path(cache), 1 << 30)
    print("ready", flush=True)
    sys.stdin.readline()
    store.path(parse_digest(digest))
    print(len(bucket.fetched), flush=True)


if __name__ == "__main__":
    main()

"""The store: blobs by digest and an index of manifests, as an OCI image layout in a folder or a bucket.

This package does not interpret the content of blobs other than manifests.
"""

from service.cache.garbage import MIN_AGE_S, Collected
from service.cache.layout import IndexAnnotations, OciLayout
from service.cache.local import LocalBlobStore
from service.cache.oci import EMPTY_MEDIA_TYPE, MANIFEST_MEDIA_TYPE, Descriptor, Manifest
from service.cache.store import BlobStore, BlobWriter

__all__ = [
    "EMPTY_MEDIA_TYPE",
    "MANIFEST_MEDIA_TYPE",
    "MIN_AGE_S",
    "BlobStore",
    "BlobWriter",
    "Collected",
    "Descriptor",
    "IndexAnnotations",
    "LocalBlobStore",
    "Manifest",
    "OciLayout",
]

"""A process that uses a store: `python -m tests.support.store_process ACTION ROOT …`. See `child_process`."""

from __future__ import annotations

import itertools
import os
import sys
import time
from pathlib import Path

from service.cache import LocalBlobStore, Manifest, OciLayout
from service.core.digest import Digest
from service.core.errors import NotFound

CHUNK = b"x" * (1 << 20)


def write_half(root: str) -> None:
    """Writes part of a blob, and never the rest."""
    with LocalBlobStore(Path(root)).writer() as writer:
        writer.write(CHUNK)
        print("halfway", flush=True)
        time.sleep(600)


def put_forever(root: str) -> None:
    store = LocalBlobStore(Path(root))
    for number in itertools.count():
        store.put_bytes(os.urandom(1 << 16) + CHUNK)
        if number == 0:
            print("begun", flush=True)


def annotate_forever(root: str, digest: str) -> None:
    layout = OciLayout(Path(root))
    for number in itertools.count():
        layout.annotate(Digest(digest), {"number": str(number)})
        if number == 0:
            print("begun", flush=True)


def put_same(root: str, times: str) -> None:
    store = LocalBlobStore(Path(root))
    for _ in range(int(times)):
        store.read(store.put_bytes(CHUNK))


def publish(root: str, name: str, times: str) -> None:
    """Lists its own manifests, and annotates one that other processes annotate as well."""
    layout = OciLayout(Path(root))
    for number in range(int(times)):
        digest = _publish(layout, f"{name} {number}")
        layout.attach(digest, "application/vnd.example.report", f"report of {name} {number}".encode())
        layout.annotate(_publish(layout, "shared"), {f"{name}.{number}": "here"})


def publish_in_spite_of_a_collector(root: str, name: str, times: str) -> None:
    layout = OciLayout(Path(root))
    for number in range(int(times)):
        while True:
            try:
                _publish(layout, f"{name} {number}")
                break
            except NotFound:
                # the collector, which has no minimum age here, was faster: an error is allowed, but not a broken
                # manifest
                pass


def collect(root: str, times: str) -> None:
    layout = OciLayout(Path(root))
    for _ in range(int(times)):
        layout.collect_garbage(min_age_s=0)


def _publish(layout: OciLayout, content: str) -> Digest:
    config = layout.put_blob_descriptor("application/vnd.example.config", b"config")
    layer = layout.put_blob_descriptor("application/vnd.example.layer", content.encode())
    return layout.put_manifest(Manifest("application/vnd.example", config, (layer,))).digest


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])

"""Starts a real S3-compatible server, OpenStack Swift with its S3 API, in a temporary folder on loopback ports.

It checks signatures, and supports conditional requests, multipart uploads and paginated listings.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path

from tests.support.waiting import WORK_TIMEOUT_S

BUCKET = "octet"
_KEY, _SECRET = "test:tester", "testing"
_SERVERS = ("account", "container", "object")

_COMMON = """
[DEFAULT]
bind_ip = 127.0.0.1
bind_port = {port}
workers = 0
user = {user}
swift_dir = {folder}
devices = {folder}/devices
mount_check = false
fallocate_reserve = 0
disable_fallocate = true
log_address = {folder}/no-syslog
log_level = ERROR
"""
_STORAGE = (
    _COMMON
    + """
[pipeline:main]
pipeline = {name}-server
[app:{name}-server]
use = egg:swift#{name}
[{name}-replicator]
[{name}-auditor]
[{name}-updater]
"""
)
_PROXY = (
    _COMMON
    + """
[pipeline:main]
pipeline = catch_errors cache s3api tempauth bulk slo dlo symlink versioned_writes proxy-server
[app:proxy-server]
use = egg:swift#proxy
allow_account_management = true
account_autocreate = true
[filter:catch_errors]
use = egg:swift#catch_errors
[filter:cache]
use = egg:swift#memcache
memcache_servers = 127.0.0.1:1
[filter:s3api]
use = egg:swift#s3api
[filter:tempauth]
use = egg:swift#tempauth
user_test_tester = testing .admin
[filter:bulk]
use = egg:swift#bulk
[filter:slo]
use = egg:swift#slo
[filter:dlo]
use = egg:swift#dlo
[filter:symlink]
use = egg:swift#symlink
[filter:versioned_writes]
use = egg:swift#versioned_writes
allow_object_versioning = true
"""
)


def why_not() -> str | None:
    """Returns the reason why no server can be started on this machine, or None if one can."""
    if find_spec("swift") is None or find_spec("pyeclib") is None:
        return "the S3 server is not installed (pip install swift pyeclib)"
    if find_spec("obstore") is None:
        return "obstore is not installed"
    return None


def environment(port: int) -> dict[str, str]:
    """Returns the environment variables that contain the address and the credentials for clients of the bucket."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": _KEY,
        "AWS_SECRET_ACCESS_KEY": _SECRET,
        "AWS_REGION": "us-east-1",
    }


@contextmanager
def server() -> Iterator[int]:
    """Starts a server with an empty bucket, and yields its port."""
    folder = Path(tempfile.mkdtemp(prefix="octet-s3-"))
    try:
        with ExitStack() as stack:
            ports = {name: _free_port() for name in (*_SERVERS, "proxy")}
            _configure(folder, ports)
            for name in (*_SERVERS, "proxy"):
                stack.enter_context(_started(folder, name))
            _make_bucket(ports["proxy"])
            yield ports["proxy"]
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, ports: dict[str, int]) -> None:
    (folder / "swift.conf").write_text(
        "[swift-hash]\nswift_hash_path_suffix = octet\nswift_hash_path_prefix = octet\n"
        "[storage-policy:0]\nname = only\ndefault = yes\n"
    )
    user = "root" if os.getuid() == 0 else os.environ["USER"]
    for name in _SERVERS:
        (folder / "devices" / "disk").mkdir(parents=True, exist_ok=True)
        device = {"region": 1, "zone": 1, "ip": "127.0.0.1", "port": ports[name], "device": "disk", "weight": 1.0}
        # This runs in a child process, because importing Swift's libraries changes how a process forks.
        made = [sys.executable, "-W", "ignore", "-c", _MAKE_RING, json.dumps(device), str(folder / f"{name}.ring.gz")]
        subprocess.run(made, check=True, timeout=WORK_TIMEOUT_S)
        text = _STORAGE.format(name=name, port=ports[name], folder=folder, user=user)
        (folder / f"{name}.conf").write_text(text)
    (folder / "proxy.conf").write_text(_PROXY.format(port=ports["proxy"], folder=folder, user=user))


_MAKE_RING = """
import json, sys
from swift.common.ring import RingBuilder
ring = RingBuilder(2, 1, 0)
ring.add_dev(json.loads(sys.argv[1]))
ring.rebalance()
ring.get_ring().save(sys.argv[2])
"""


@contextmanager
def _started(folder: Path, name: str) -> Iterator[None]:
    code = (
        "import sys; from swift.common import utils; utils.SWIFT_CONF_FILE = sys.argv[1];"
        "from swift.common.wsgi import run_wsgi; sys.exit(run_wsgi(sys.argv[2], sys.argv[3], default_port=0))"
    )
    command: list[str | Path] = [
        sys.executable,
        "-W",
        "ignore",
        "-c",
        code,
        folder / "swift.conf",
        folder / f"{name}.conf",
    ]
    log = folder / f"{name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, f"{name}-server"],
            stdout=output,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "EVENTLET_NO_GREENDNS": "yes"},
        )
    try:
        _wait_until_it_listens(folder / f"{name}.conf", process, log)
        yield
    finally:
        process.kill()
        process.wait(timeout=WORK_TIMEOUT_S)


def _wait_until_it_listens(configuration: Path, process: subprocess.Popen[bytes], log: Path) -> None:
    port = int(configuration.read_text().split("bind_port = ")[1].split()[0])
    until_s = time.monotonic() + WORK_TIMEOUT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            if process.poll() is not None or time.monotonic() > until_s:
                raise RuntimeError(f"{configuration.stem} did not start:\n{log.read_text()}") from None
            time.sleep(0.05)


def _make_bucket(port: int) -> None:
    """Creates the bucket with a request that has AWS's signature, version 4. Octet's client cannot create buckets."""
    import httpx

    now = datetime.now(UTC)
    day, empty = now.strftime("%Y%m%d"), hashlib.sha256(b"").hexdigest()
    headers = {
        "host": f"127.0.0.1:{port}",
        "x-amz-content-sha256": empty,
        "x-amz-date": now.strftime("%Y%m%dT%H%M%SZ"),
    }
    names, scope = ";".join(headers), f"{day}/us-east-1/s3/aws4_request"
    headers_text = "".join(f"{name}:{value}\n" for name, value in headers.items())
    request = f"PUT\n/{BUCKET}\n\n{headers_text}\n{names}\n{empty}"
    text = f"AWS4-HMAC-SHA256\n{headers['x-amz-date']}\n{scope}\n{hashlib.sha256(request.encode()).hexdigest()}"
    key = f"AWS4{_SECRET}".encode()
    for part in (*scope.split("/"), text):
        key = hmac.digest(key, part.encode(), "sha256")
    headers["authorization"] = f"AWS4-HMAC-SHA256 Credential={_KEY}/{scope},SignedHeaders={names},Signature={key.hex()}"
    httpx.put(f"http://127.0.0.1:{port}/{BUCKET}", headers=headers, timeout=WORK_TIMEOUT_S).raise_for_status()


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port

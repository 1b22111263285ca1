"""`python -m tests.support.cluster_bucket PORT`: starts an S3 server on this port of every address.

When it accepts requests, it prints the environment variables for its clients as JSON. Run it in the network namespace
of the cluster.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from contextlib import suppress

from tests.support import s3_server


async def _serve(inner: int, outer: int) -> None:
    async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            back, forth = await asyncio.open_connection("127.0.0.1", inner)
        except OSError:
            writer.close()
            return
        await asyncio.gather(_pump(reader, forth), _pump(back, writer))

    server = await asyncio.start_server(relay, "0.0.0.0", outer)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.close)
    print(json.dumps(s3_server.environment(inner)), flush=True)
    with suppress(asyncio.CancelledError):
        await server.serve_forever()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass
    finally:
        writer.close()


if __name__ == "__main__":
    with s3_server.server() as port:
        asyncio.run(_serve(port, int(sys.argv[1])))

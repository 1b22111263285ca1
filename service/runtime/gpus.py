"""`python -m service.runtime.gpus`: prints what NVIDIA's driver reports, as JSON, for `core.system.gpus`."""

from __future__ import annotations

import json

from service.core.errors import Unsupported
from service.runtime.octet_library import cards


def main() -> None:
    try:
        found, version = cards()
    except (Unsupported, OSError) as error:
        print(json.dumps({"cards": [], "cuda": "", "problem": str(error)}))
        return
    listed = [{"name": each.name, "capability": each.capability, "memory_bytes": each.memory_bytes} for each in found]
    print(json.dumps({"cards": listed, "cuda": f"{version // 1000}.{version % 1000 // 10}", "problem": ""}))


if __name__ == "__main__":
    main()

"""How cost grows with the rate, the columns and the partitions: `python -m benchmarks.growth [--paste]`.

Runs `sfd-stream size` for a few deployments: its unit costs (sketching, decoding, a snapshot) are measured on this
machine, its sizes and requests are held by tests/unit/tools/test_sizing.py. The client's share of a row's time comes on
top: `python -m benchmarks.pipelines` has it. `--paste` writes the table into docs/performance.md.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from benchmarks.tables import Table, paste
from sfd_stream.tools.sizing import as_size

PAGE = Path(__file__).parents[1] / "docs" / "performance.md"
EPSILON, K, Z = 0.1, 10, 20
PODS = 4
DEPLOYMENTS = {
    "10,000 rows/s, 10,000 columns, 12 partitions": (10_000, 10_000, 12),
    "**1,000,000** rows/s, 10,000 columns, 200 partitions": (1_000_000, 10_000, 200),
    "10,000 rows/s, **1,000,000** columns, 12 partitions": (10_000, 1_000_000, 12),
    "10,000 rows/s, 10,000 columns, **1,000** partitions": (10_000, 10_000, 1_000),
}


def sized(rate: int, d: int, partitions: int) -> dict[str, Any]:
    """What `size` answers by its rule `experience`."""
    given = {"epsilon": EPSILON, "k": K, "z": Z, "rate": rate, "d": d, "partitions": partitions, "pods": PODS}
    options = [word for name, value in given.items() for word in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "sfd_stream", "size", "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout)["experience"]
    return found


def row(name: str, found: dict[str, Any]) -> list[str]:
    return [
        name,
        f"{found['cpu_share']:.2g}",
        as_size(found["memory_per_partition_bytes"]),
        as_size(found["broker_bytes_per_s"]),
        f"{found['store_requests_per_hour'] / 3600:,.0f}",
        as_size(found["checkpoint_bytes_per_hour"] / 3600),
    ]


def main() -> None:
    columns = [
        "deployment",
        "cores",
        "memory of a partition",
        "broker, a second",
        "store requests a second",
        "stored a second",
    ]
    rows = [row(name, sized(*deployment)) for name, deployment in DEPLOYMENTS.items()]
    table = Table("growth", f"ell for epsilon = {EPSILON:g}, k = {K}, rows of {Z}", columns, rows)
    table.show(Console(width=None if sys.stdout.isatty() else 150))
    if "--paste" in sys.argv:
        paste([PAGE], [table])


if __name__ == "__main__":
    main()

"""`sfd-stream size`: estimates ell for an acceptable error, and the memory, storage, bandwidth and CPU for it."""

# Annotations are evaluated: typer reads them.
import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import JsonOption

if TYPE_CHECKING:
    from sfd_stream.tools.sizing import Load

_BUDGET_S = 0.5
"""Processor time for each of the two measurements."""
_NOTES = """
epsilon      the error ||A'A - B'B|| is at most epsilon times ||A - A_k||F^2, what the best k directions leave of A
theorem      this holds for any rows, with the certainty of docs/guarantees.md; if the k directions must leave at most
             1 + epsilon times what the best ones leave, the theorem needs ell = {projection:,}
experience   this held on every stream of the benchmark (docs/experiments.md, "How many rows a sketch needs"); the bound
             for your rows is published as delta: begin with this ell, and raise it if delta is too large
broker       packed rows that workers read, one a message without compression, and snapshots that they publish
memory       of a pod: with {pods} pods of which one is down
scorer       of "sfd-stream score", if you run it: any number of them, each with the snapshots of all partitions
CPU          sketching, decoding packed rows and a snapshot a minute, measured just now ({measured});
             the Kafka client and checkpoints come on top"""


def size(
    epsilon: Annotated[
        float,
        typer.Option(
            min=1e-6, max=1.0, help="Acceptable error, as a fraction of what the best rank-k approximation leaves."
        ),
    ],
    d: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="Number of columns.")],
    k: Annotated[int, typer.Option(min=0, help="Number of directions that you will use.")] = 10,
    rate: Annotated[float, typer.Option(min=0, help="Rows per second, over all partitions.")] = 1_000.0,
    partitions: Annotated[int, typer.Option(min=1, help="Number of partitions of the input topic.")] = 1,
    z: Annotated[
        int | None, typer.Option(min=1, help="Number of non-zeros per row.", show_default="100, or d if less")
    ] = None,
    pods: Annotated[int, typer.Option(min=1, help="Number of workers, one per pod.")] = 2,
    column_squares: Annotated[bool, typer.Option(help="With sketch.column_squares: true.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Estimate a deployment from an acceptable error: ell, memory, checkpoints, bandwidth, CPU.

    Example: [bold]sfd-stream size --epsilon 0.05 --k 10 --d 10000 --rate 5000 --partitions 12[/bold]
    """
    from sfd_stream.cli.output import print_json, print_table, print_text, short
    from sfd_stream.tools import sizing

    load = sizing.Load.by_default(rate, partitions, min(z or 100, d))
    rules = {"theorem": sizing.ell_by_theorem(epsilon, k), "experience": sizing.ell_by_experience(epsilon, k)}
    projection = sizing.ell_for_projection(epsilon, k)
    sized = {name: _sized(d, min(ell, d), load, pods, column_squares) for name, ell in rules.items()}
    if as_json:
        given = {"epsilon": epsilon, "k": k, "d": d, "z": load.z, "rate": rate, "partitions": partitions, "pods": pods}
        print_json({**given, "ell_for_projection": min(projection, d), **sized})
        return
    columns = [_for_people(found, exact=rules[name] >= d) for name, found in sized.items()]
    print_table(("", *sized), [(row, *(column[row] for column in columns)) for row in columns[0]])
    measured = (
        "the shape itself" if _is_small(d, max(found["ell"] for found in sized.values())) else "a smaller shape, scaled"
    )
    print_text(_NOTES.format(projection=min(projection, d), pods=short(pods), measured=measured))


def _sized(d: int, ell: int, load: "Load", pods: int, column_squares: bool) -> dict[str, Any]:
    from sfd_stream.tools import sizing

    shape = sizing.plain_shape(d, ell, column_squares=column_squares)
    partition_bytes = shape.memory_bytes()
    return {
        "ell": ell,
        "memory_per_partition_bytes": partition_bytes,
        "memory_per_pod_bytes": sizing.pod_bytes(partition_bytes, load.partitions, pods),
        "memory_per_scorer_bytes": sizing.scorer_bytes(ell, d, load.partitions, column_squares=column_squares),
        "snapshot_bytes": sizing.snapshot_bytes(ell, d, column_squares=column_squares),
        "checkpoint_bytes_per_hour": sizing.checkpoint_bytes_per_hour(shape, load),
        "store_requests_per_hour": sizing.store_requests_per_hour(shape, load),
        "broker_bytes_per_s": sizing.broker_bytes_per_s(shape, load),
        "cpu_share": _cpu_share(d, ell, load),
    }


def _cpu_share(d: int, ell: int, load: "Load") -> float:
    """The share of one processor that all partitions need together."""
    from threadpoolctl import threadpool_limits

    from sfd_stream.tools import benchmark, sizing

    with threadpool_limits(1):
        row_s, sketch_s = benchmark.calibrated(
            sizing.plain_shape(d, ell).parameters, load.z, _BUDGET_S, time.process_time
        )
        decoding = benchmark.decode_rate("packed", d, load.z, _BUDGET_S / 4, time.process_time)
    sketches = load.partitions * sketch_s / load.snapshot_every_s
    return load.rate * (row_s + 1 / decoding.rows_per_s) + sketches


def _is_small(d: int, ell: int) -> bool:
    from sfd_stream.tools import benchmark

    return d <= benchmark.CALIBRATED_D and ell <= benchmark.CALIBRATED_ELL


def _for_people(found: dict[str, Any], *, exact: bool) -> dict[str, str]:
    from sfd_stream.tools.sizing import as_size

    return {
        "ell": f"{found['ell']:,}" + (" (= d: exact)" if exact else ""),
        "memory per partition": as_size(found["memory_per_partition_bytes"]),
        "memory per pod": as_size(found["memory_per_pod_bytes"]),
        "memory per scorer": as_size(found["memory_per_scorer_bytes"]),
        "snapshot": as_size(found["snapshot_bytes"]),
        "checkpoints an hour": as_size(found["checkpoint_bytes_per_hour"]),
        "store requests an hour": f"{found['store_requests_per_hour']:,}",
        "broker, bytes a second": as_size(found["broker_bytes_per_s"]),
        "CPU share (1 = one core)": f"{found['cpu_share']:.2g}",
    }

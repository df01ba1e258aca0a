"""`sfd-stream bench`: how fast is this machine for my shape?"""

# Annotations are evaluated: typer reads them.
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sfd_stream.cli.options import JsonOption

if TYPE_CHECKING:
    from sfd_stream.storage.contract import Store

_MANIFEST_BYTES = 1_024
_SKETCH_BYTES_MAX = 64 * 2**20
_TIMES = 10


def bench(
    d: Annotated[int, typer.Option(min=1, max=2**31 - 1, help="Number of columns.")] = 1_000,
    ell: Annotated[int, typer.Option(min=1, help="Number of rows of the sketch.")] = 50,
    z: Annotated[int, typer.Option(min=1, help="Number of non-zeros per row.")] = 100,
    seconds: Annotated[
        float,
        typer.Option(min=0.1, help="Minimum time for each measurement."),
    ] = 2.0,
    store: Annotated[
        str | None,
        typer.Option(
            "--store",
            metavar="URL",
            help="Store to measure, written as checkpoint.url.",
            show_default="a temporary folder",
        ),
    ] = None,
    store_options: Annotated[
        list[str] | None,
        typer.Option(
            "--store-option",
            metavar="NAME=VALUE",
            help="Option of the store, as in checkpoint.options; may be repeated.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure this machine for given d, ell and z: sketching in memory, decoding messages, latency of a store.

    On one thread, as a worker has. Rates are of processor time, so other work on the machine hardly counts.

    Example: [bold]sfd-stream bench --d 10000 --ell 100 --z 50[/bold]
    """
    from sfd_stream.errors import SettingsError

    if max(ell, z) > d:
        raise SettingsError(f"--ell {ell} and --z {z} must be at most --d, which is {d}; give fewer, or more columns")
    with _opened(store, store_options or []) as opened:
        rates = {"sketch": _sketch(d, ell, z, seconds), **_decoders(d, z, seconds)}
        latencies = _latencies(opened, min(ell * d * 8, _SKETCH_BYTES_MAX))
        url = opened.url if store else "a temporary folder"
    found = {"d": d, "ell": ell, "z": z, "rates": rates, "store": {"url": url, "latency_s": latencies}}
    _print(found, as_json=as_json)


@contextmanager
def _opened(url: str | None, options: list[str]) -> "Iterator[Store]":
    import tempfile
    from pathlib import Path

    from sfd_stream.errors import SettingsError
    from sfd_stream.storage.open import open_store

    wrong = next((option for option in options if "=" not in option), None)
    if wrong is not None:
        raise SettingsError(f"--store-option {wrong!r} has no =; write it as region=eu-central-1")
    if url is not None:
        yield open_store(url, dict(option.split("=", 1) for option in options))
        return
    with tempfile.TemporaryDirectory(prefix="sfd-bench-") as folder:
        yield open_store(Path(folder).as_uri())


def _sketch(d: int, ell: int, z: int, seconds: float) -> dict[str, float]:
    from threadpoolctl import threadpool_limits

    from sfd_stream.tools import benchmark, sizing

    with threadpool_limits(1):
        rate = benchmark.sketch_rate(sizing.plain_shape(d, ell).parameters, z, seconds, time.process_time)
    return {"rows_per_s": rate.rows_per_s, "nnz_per_s": rate.nnz_per_s}


def _decoders(d: int, z: int, seconds: float) -> dict[str, dict[str, float]]:
    from sfd_stream.tools import benchmark

    rates = {form: benchmark.decode_rate(form, d, z, seconds / 2, time.process_time) for form in benchmark.FORMS}
    return {f"decode {form}": {"rows_per_s": r.rows_per_s, "nnz_per_s": r.nnz_per_s} for form, r in rates.items()}


def _latencies(store: "Store", sketch_bytes: int) -> dict[str, dict[str, dict[str, float]]]:
    from sfd_stream.tools import benchmark

    sizes = {f"{_MANIFEST_BYTES:,} bytes": _MANIFEST_BYTES, f"{sketch_bytes:,} bytes": sketch_bytes}
    found = benchmark.store_latencies(store, sizes, _TIMES, time.perf_counter)
    return {
        size: {verb: {"median": times[len(times) // 2], "most": times[-1]} for verb, times in verbs.items()}
        for size, verbs in found.items()
    }


def _print(found: dict[str, Any], *, as_json: bool) -> None:
    from sfd_stream.cli.output import print_json, print_table, print_text

    if as_json:
        print_json(found)
        return
    rates = [(name, round(rate["rows_per_s"]), round(rate["nnz_per_s"])) for name, rate in found["rates"].items()]
    print_table((f"d={found['d']:,} ell={found['ell']:,} z={found['z']:,}", "rows/s", "non-zeros/s"), rates)
    print_text(f"\n{found['store']['url']}: median (most) of {_TIMES}, in milliseconds")
    sizes = found["store"]["latency_s"]
    verbs = next(iter(sizes.values()))
    rows = [(size, *map(_in_ms, found_verbs.values())) for size, found_verbs in sizes.items()]
    print_table(("object of", *verbs), rows)


def _in_ms(seconds: dict[str, float]) -> str:
    return f"{1000 * seconds['median']:.1f} ({1000 * seconds['most']:.1f})"

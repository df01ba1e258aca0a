"""The machine: whether one partition fits into a worker's memory, and the BLAS threads into its processors."""

from __future__ import annotations

from sfd_stream.config.container_limits import Quota
from sfd_stream.doctor.check import Verdict
from sfd_stream.doctor.machine import memory, threads
from tests.unit.doctor.patients import patient

GIB = 2**30


def test_memory_says_how_many_partitions_fit() -> None:
    found = memory(patient(quota=Quota(2.0, GIB), overrides=("worker.memory_max_bytes=512MiB",)))
    assert found.verdict is Verdict.GOOD
    assert found.reason == "a partition needs up to 12.6 MB: 42 fit into a worker's 537 MB"


def test_a_sketch_that_never_fits_fails() -> None:
    wide = ("sketch.d=2000000", "sketch.ell=1000", "worker.memory_max_bytes=512MiB")
    assert memory(patient(quota=Quota(2.0, GIB), overrides=wide)).verdict is Verdict.FAILED


def test_more_threads_than_processors_is_a_warning() -> None:
    assert threads(patient(quota=Quota(2.0, GIB))).verdict is Verdict.GOOD
    found = threads(patient(quota=Quota(2.0, GIB), overrides=("worker.blas_threads=8",)))
    assert (found.verdict, bool(found.remedy)) == (Verdict.WARNING, True)

"""Checks that the machine or container has the processors and the memory that the settings ask for."""

from __future__ import annotations

import os
from collections.abc import Iterator

from sfd_stream.config.container_limits import Quota, fitted, misfits
from sfd_stream.doctor.check import Check, Finding, failed, good, warning
from sfd_stream.doctor.context import Patient
from sfd_stream.errors import SettingsError
from sfd_stream.tools.sizing import LESS_MEMORY, as_size, may_be_too_large, too_wide

_THREADS = "worker.blas_threads"


def threads(patient: Patient) -> Finding:
    settings = fitted(patient.settings, patient.quota)
    for words in misfits(settings, patient.quota):
        if words.startswith(_THREADS):
            reason, _, remedy = words.rpartition("; ")
            return warning(reason, remedy)
    cpus = "no limit" if patient.quota.cpus is None else f"{patient.quota.cpus:g} CPUs"
    return good(f"{_THREADS} is {settings.worker.blas_threads}; there are {cpus}")


def memory(patient: Patient) -> Finding:
    limit = patient.quota.memory_bytes or os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    quota = Quota(patient.quota.cpus, limit)
    settings = fitted(patient.settings, patient.quota)
    for words in misfits(settings, quota):
        if not words.startswith(_THREADS):
            reason, _, remedy = words.rpartition("; ")
            return warning(reason, remedy)
    shape, budget = patient.shape, settings.worker.memory_max_bytes
    if (misfit := too_wide(shape, shape.columns.d, budget)) is not None:
        return failed(misfit, LESS_MEMORY, SettingsError)
    if (misfit := may_be_too_large(shape, budget)) is not None:
        return warning(misfit, LESS_MEMORY)
    one = shape.memory_bytes()
    return good(f"a partition needs up to {as_size(one)}: {budget // one} fit into a worker's {as_size(budget)}")


def checks() -> Iterator[Check]:
    yield Check("BLAS threads", threads, "")
    yield Check("memory", memory, "")

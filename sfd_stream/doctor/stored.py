"""What the checkpoint store holds of this group and topic, where it can be read."""

from __future__ import annotations

import random
import time

from sfd_stream.doctor.context import Patient
from sfd_stream.errors import StoreError
from sfd_stream.state.manifest import Manifest
from sfd_stream.state.perform import Patience, run
from sfd_stream.tools.inspect import Place, stand
from sfd_stream.tools.summary import partitions_in


def newest_manifests(patient: Patient) -> dict[int, Manifest]:
    """By partition; empty where the store does not answer, which is another check's to say."""
    group, topic = patient.settings.group, patient.settings.input.topic
    patience = Patience(patient.timeout_s, time.monotonic, time.sleep, lambda: random.uniform(0.5, 1))
    try:
        places = [Place(group, topic, partition) for partition in partitions_in(patient.store, group, topic)]
        found = {place.partition: run(stand(place), patient.store, patience).newest for place in places}
    except StoreError:
        return {}
    return {partition: newest for partition, newest in found.items() if isinstance(newest, Manifest)}

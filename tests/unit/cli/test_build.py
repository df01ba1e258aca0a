"""The parts that settings describe: each has the setting's value, and a service next to a worker has its own port."""

from __future__ import annotations

import pytest

from sfd_stream.cli.build import listener_next_to_worker
from sfd_stream.config.model import HttpSettings
from sfd_stream.errors import SettingsError
from sfd_stream.observe.server import listening


def test_merge_beside_a_worker_takes_another_port_unless_it_was_told_which() -> None:
    with listening("127.0.0.1", 0) as worker:
        taken = worker.getsockname()[1]
        http = HttpSettings(port=taken)
        with listener_next_to_worker(http, own_port=False) as other:
            assert other.getsockname()[1] != taken
        with pytest.raises(SettingsError, match=f"http.port {taken} of 127.0.0.1 is in use"):
            listener_next_to_worker(http, own_port=True)

"""The status of a worker: one frozen value, and the JSON that says the same."""

from __future__ import annotations

import json

from sfd_stream.observe.status import as_json
from tests.support.watched import Stage


def test_the_status_is_json_that_says_what_the_value_says() -> None:
    stage = Stage()
    stage.feed(0, 50)
    stage.watch.dead_letter(1, 9, "bad_index", 'column "<b>" outside', b"\x00<script>\xff")
    stage.tick()
    [worker] = json.loads(as_json(stage.watch.status, 1.25, 4096))["workers"]
    assert worker["loop_idle_s"] == 1.25
    assert worker["partitions"][0]["rows"] == 50
    assert worker["newest_dead_letters"][0]["preview"] == "\\x00<script>\\xff"
    assert worker["dead_letters"] == {"bad_index": 1}

"""The routes of a service: what each answers, and that health fails only if the loop does not turn."""

from __future__ import annotations

from sfd_stream.observe.routes import health_of
from tests.support.watched import Stage
from tests.unit.observe.test_server import ask, port_of


def test_it_answers_what_it_promises() -> None:
    stage = Stage()
    stage.feed(0, 5)
    stage.tick()
    with port_of(stage) as port:
        found = {path: ask(port, path) for path in ("/", "/metrics", "/status.json", "/healthz", "/readyz")}
    assert {path: code for path, (code, _, _) in found.items()} == dict.fromkeys(found, 200)
    assert b"sfd_rows_total" in found["/metrics"][2]
    assert found["/status.json"][1]["Content-Type"] == "application/json"
    assert found["/healthz"][2] == b"ok\n"
    assert found["/"][2].startswith(b"<!doctype html>")


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    with port_of() as port:
        policy = ask(port, "/")[1]["Content-Security-Policy"]
        other = ask(port, "/status.json")[1]
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    assert rules["connect-src"] == "'self'"
    assert all("unsafe" not in rule for rule in rules.values())
    assert rules["script-src"].startswith("'sha256-")
    assert (other["Content-Security-Policy"], other["X-Content-Type-Options"]) == ("default-src 'none'", "nosniff")


def test_health_fails_when_the_loop_does_not_turn_and_only_then() -> None:
    stage = Stage()
    stage.tick()
    stage.around = stage.around._replace(broker_away_s=500.0, joined=False)
    for partition in stage.states:
        stage.put(partition, "paused")
    stage.tick()
    with port_of(stage) as port:
        assert ask(port, "/healthz")[0] == 200, "a broker or a store that is away is no reason to restart"
        assert ask(port, "/readyz")[0] == 503
        stage.clock.now += 61
        assert ask(port, "/healthz")[::2] == (503, b"the loop has not turned for 61 s\n")
    assert health_of(59.9, 60.0).code == 200

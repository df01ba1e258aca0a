"""Progress lines: due once an interval, with the rate since the last."""

from __future__ import annotations

from sfd_stream.observe.progress import Progress, ProgressLog


def test_a_line_is_due_once_an_interval_and_tells_the_rate_since_the_last() -> None:
    news, progress = ProgressLog(60.0, 0.0), Progress(rows=1_200, bad=3, checkpoints=2)
    assert not news.is_due(59.9)
    assert news.is_due(60.0)
    line = {"rows": 1_200, "rows_per_s": 20, "bad": 3, "lag": 7, "checkpoints": 2}
    assert news.line(progress, 7, 60.0) == line
    assert not news.is_due(100.0)
    progress.rows += 600
    assert news.line(progress, None, 120.0) == {"rows": 1_800, "rows_per_s": 10, "bad": 3, "checkpoints": 2}

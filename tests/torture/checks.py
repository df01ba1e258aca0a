"""Everything that must hold after a campaign, one finding per check."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sfd_stream.cli.build import store_of
from sfd_stream.state.manifest import Manifest, blob_name_of, blobs_prefix
from sfd_stream.storage.contract import partition_prefix
from tests.system.runs import Run, assert_same
from tests.torture import truth
from tests.torture.parts import DiskStore
from tests.torture.programs import Usage

if TYPE_CHECKING:
    from tests.torture.campaign import Campaign

PEAK = {"rss_bytes": 600 * 2**20, "threads": 150, "files": 300}
"""At any time. With three brokers a client has some ten threads. A replaced one closes slowly while a broker does not
answer."""

SETTLED = {"rss_bytes": 400 * 2**20, "threads": 90, "files": 160}
"""After the drain."""

GROWTH_AFTER_S = 20 * 60.0
"""Growth is judged where a process has lived this long."""

STILL_THERE_S = 5.0
"""A process that was sampled this short a time before the end has lived to it."""

BROKEN = re.compile(r"Traceback \(most recent|Fatal Python error|Assertion .* failed|Segmentation fault|core dumped")

STATES_MISSING = "score states are missing, p-values begin again"
"""What a scorer logs that claimed a partition, and found no histogram of its offset within 16 s."""


@dataclass
class Finding:
    """The result of a check: no violation means that it passed."""

    check: str
    detail: str = ""
    violations: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        found = f"**{len(self.violations)} violations**" if self.violations else "passed"
        return f"{found}; {self.detail}" if self.detail else found


def check_everything(campaign: Campaign) -> list[Finding]:
    direct, load = campaign.parts.brokers.direct, campaign.parts.load
    expected = truth.expected_of(direct, campaign.topic)
    rows = sum(one.rows for one in expected.values())
    return [
        Finding(
            "load: what the broker acknowledged is in the topic",
            f"{rows:,} rows, {sum(len(one.bad) for one in expected.values()):,} bad messages",
            load.failures + truth.check_acknowledged(load.acknowledged, expected),
        ),
        _counters(campaign, expected),
        _bits(campaign, expected),
        _letters(campaign, campaign.letters, "workers", expected),
        _letters(campaign, campaign.score_letters, "scorers", expected),
        *_scores(campaign, expected),
        *_readers(campaign),
        _orphans(campaign),
        Finding("no unexpected exit code, abort or segmentation fault", _starts(campaign), campaign.ends_unexpected),
        _logs(campaign),
        usage_of(campaign.keeper.usage),
    ]


def _counters(campaign: Campaign, expected: dict[int, truth.Expected]) -> Finding:
    """Of the checkpoints, the snapshots, and the merged sketch."""
    finding = Finding("counters exact in checkpoints, snapshots and the merged sketch")
    for partition, wanted in expected.items():
        state = campaign.run_settings.state(partition)
        finding.violations += truth.check_counters(partition, state.sketch(), wanted, "checkpoint")
        counts = state.bad, state.tombstones
        if counts != (len(wanted.bad), wanted.tombstones):
            finding.violations.append(f"partition {partition}: (bad, tombstones) {counts} of the checkpoint")
    for one in campaign.snapshots_on(campaign.snapshots):
        partition = one.id.partition
        finding.violations += truth.check_counters(partition, one.sketch, expected[partition], "snapshot")
    (merged,) = campaign.snapshots_on(campaign.merged) or (None,)
    rows = None if merged is None else merged.sketch.rows
    if rows != sum(one.rows for one in expected.values()):
        finding.violations.append(f"the merged sketch has {rows} rows")
    return finding


def _bits(campaign: Campaign, expected: dict[int, truth.Expected]) -> Finding:
    """A second group reads the topic without any fault, to a folder of its own."""
    finding = Finding("states bit-identical to an undisturbed run")
    brokers, folder = campaign.parts.brokers, campaign.folder / "undisturbed"
    folder.mkdir()
    brokers.create_topic("undisturbed-bad", 1)
    changes = {"dead_letters": {"topic": "undisturbed-bad"}, "log": {"level": "info"}}
    run = Run(brokers.first, campaign.topic, folder, (folder / "store").as_uri(), group="undisturbed", changes=changes)
    undisturbed = run.start(until_end=True)
    try:
        code = undisturbed.wait(120 + 60 * campaign.minutes)
        if code != 0:
            finding.violations.append(f"the undisturbed run ended with {code}")
            return finding
        for partition in expected:
            _add_failure(
                finding,
                f"partition {partition}",
                lambda p=partition: assert_same(campaign.run_settings.state(p), run.state(p)),
            )
    finally:
        run.close()
    return finding


def _add_failure(finding: Finding, where: str, check: Callable[[], None]) -> None:
    try:
        check()
    except AssertionError as error:
        finding.violations.append(f"{where}: {error!s:.300}")


def _letters(campaign: Campaign, topic: str, sender: str, expected: dict[int, truth.Expected]) -> Finding:
    letters = list(truth.records(campaign.parts.brokers.direct, topic))
    unique = {(one.headers["sfd-partition"], one.headers["sfd-offset"]) for one in letters}
    repeated = len(letters) - len(unique)
    return Finding(
        f"dead letters of the {sender} complete and exact",
        f"{len(letters):,} letters, {repeated:,} of them repeated by replays",
        truth.check_dead_letters(letters, expected),
    )


def _scores(campaign: Campaign, expected: dict[int, truth.Expected]) -> list[Finding]:
    once = campaign.shape.score_delivery == "transactional"
    scored = truth.read_scores(truth.records(campaign.parts.brokers.direct, campaign.scores), campaign.topic, expected)
    each = Finding(
        f"every row has its score, {'exactly one' if once else 'repeated only under its identity'}",
        f"{scored.scores:,} scores, {scored.repeated:,} of them repeated",
        truth.check_scores(scored, expected, once=once),
    )
    if not once or each.violations:
        return [each]
    lost = sum(log.read_text().count(STATES_MISSING) for log in campaign.folder.glob("scorer-*.log"))
    earlier = Finding("p-values compare with each earlier row once", f"histograms began again {lost} times")
    if not lost:
        earlier.violations = truth.check_earlier_rows(scored, expected)
    return [each, earlier]


def _readers(campaign: Campaign) -> list[Finding]:
    live = Finding("no live reader went back")
    for seen in campaign.seen.values():
        live.violations += truth.check_never_back(seen)
    live.detail = (
        f"{sum(len(seen.read_text().splitlines()) for seen in campaign.seen.values() if seen.exists()):,} sketches read"
    )
    if campaign.shape.delivery != "transactional":
        return [live]
    snapshots = list(truth.records(campaign.parts.brokers.direct, campaign.snapshots))
    once = Finding(
        "transactional readers get each state once, in order",
        f"{len(snapshots):,} states",
        truth.check_published_once(snapshots),
    )
    return [live, once]


def _orphans(campaign: Campaign) -> Finding:
    finding, run, unused = Finding("no orphan blobs beyond those of crashed writes"), campaign.run_settings, 0
    store = store_of(run.settings())
    for partition in campaign.ends:
        keys = store.list(blobs_prefix(partition_prefix(run.group, run.topic, partition)))
        found = unreferenced(run.manifests(partition), keys)
        unused += len(found)
        finding.violations += [key for key, allowed in found.items() if not allowed]
    disk = campaign.parts.store
    temporary = f", {disk.temporary_files()} temporary files" if isinstance(disk, DiskStore) else ""
    finding.detail = f"{unused} blobs that no manifest refers to{temporary}"
    return finding


def unreferenced(manifests: Sequence[Manifest], keys: Iterable[str]) -> dict[str, bool]:
    """Blobs that no manifest refers to, each with whether it may exist.

    A worker that dies while it writes leaves blobs for a slot after the newest manifest. Snapshots from the last
    acknowledged one on are kept, because readers may have a reference to any of them. All others must be removed.
    """
    referred = {blob.key for manifest in manifests for blob in manifest.references}
    newest = manifests[-1]
    published = None if newest.published is None else blob_name_of(newest.published.blob.key)
    names = {key: blob_name_of(key) for key in keys if key not in referred}
    return {
        key: name is not None
        and (
            name.slot > newest.number
            or (name.kind == "snapshot" and (published is None or name.slot >= published.slot))
        )
        for key, name in names.items()
    }


def behind(what: str, found: Mapping[int, int | None], ends: Mapping[int, int]) -> list[str]:
    """The partitions that have not arrived at their end."""
    return [f"{what}: partition {p}: {found.get(p)} of {end}" for p, end in ends.items() if found.get(p) != end]


def _starts(campaign: Campaign) -> str:
    return ", ".join(f"{one.name} started {one.starts} times" for one in [*campaign.programs, campaign.parts.extra])


def _logs(campaign: Campaign) -> Finding:
    finding = Finding("no traceback, failed assertion or fatal error in any log")
    for log in sorted(campaign.folder.glob("*.*.log")):
        for line in log.read_text(errors="replace").splitlines():
            if BROKEN.search(line):
                finding.violations.append(f"{log.name}: {line[:200]}")
    return finding


def usage_of(usage: Sequence[Usage]) -> Finding:
    """Limits for every process; growth where a process lived long enough: its last quarter against its second one."""
    finding = Finding("memory, threads and file descriptors flat")
    by_process: dict[tuple[str, int], list[Usage]] = {}
    for one in usage:
        by_process.setdefault((one.program, one.pid), []).append(one)
    end_s = max(one.at_s for one in usage)
    for (program, _), samples in by_process.items():
        finding.violations += _above(PEAK, f"{program}, at most", samples)
        if samples[-1].at_s > end_s - STILL_THERE_S:
            finding.violations += _above(SETTLED, f"{program}, after the drain", samples[-1:])
        if samples[-1].at_s - samples[0].at_s > GROWTH_AFTER_S:
            finding.violations += _growth(program, samples)
    finding.detail = ", ".join(_peak(program, by_process) for program in sorted({name for name, _ in by_process}))
    return finding


def _above(limits: dict[str, int], where: str, samples: list[Usage]) -> list[str]:
    peaks = {name: max(getattr(one, name) for one in samples) for name in limits}
    return [f"{where}: {name} {peak:,}, above {limits[name]:,}" for name, peak in peaks.items() if peak > limits[name]]


def _growth(program: str, samples: list[Usage]) -> list[str]:
    quarter = len(samples) // 4
    allowed = {"rss_bytes": 30 * 2**20, "threads": 3, "files": 5}
    wrong = []
    for name, more in allowed.items():
        early = statistics.median(getattr(one, name) for one in samples[quarter : 2 * quarter])
        late = statistics.median(getattr(one, name) for one in samples[3 * quarter :])
        if late > early + more:
            wrong.append(f"{program}: {name} grew from {early:,.0f} to {late:,.0f}")
    return wrong


def _peak(program: str, by_process: dict[tuple[str, int], list[Any]]) -> str:
    samples = [one for (name, _), found in by_process.items() if name == program for one in found]
    rss = max(one.rss_bytes for one in samples) / 2**20
    return f"{program} {rss:.0f} MiB, {max(o.threads for o in samples)} threads, {max(o.files for o in samples)} files"

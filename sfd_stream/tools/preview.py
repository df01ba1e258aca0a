"""Applies `input.features` to a sample of records before a worker runs: features, collisions, suspicious fields."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import islice
from typing import Any, Final

from sfd_stream.wire.columns import HashedColumns
from sfd_stream.wire.features import FeatureMap
from sfd_stream.wire.flatten import Flattener
from sfd_stream.wire.formats.records import Reader, RecordDecoder
from sfd_stream.wire.hashing import signed_columns
from sfd_stream.wire.rows.part import RowLimits

FIRST_ROWS: Final = 3
DOMINANT_SHARE: Final = 0.2
"""A feature with more than this share of the sample's squared norm is reported."""
ID_SHARE: Final = 0.9
"""A text field with more distinct values per row than this is most likely an id or a time."""
ID_ROWS: Final = 20
SHARING_MAX: Final = 0.1
"""With the recommended d, at most this share of the features shares a column with another one."""
D_MAX: Final = 2**20
_PLACES_MAX: Final = 20
_DIGITS: Final = re.compile(r"\d+")
_PATHS_MAX: Final = 10_000
"""Maximum number of paths of one record that are compared with the paths of the settings."""


@dataclass(frozen=True)
class Preview:
    messages: int
    rows: int
    first_rows: list[list[dict[str, Any]]]
    """By row, then by feature: its name, its column and the value added to the row."""
    features: int
    features_estimated: int
    """A lower bound for the whole topic, by Chao's estimator from the features that occurred once and twice."""
    d: int
    sharing: int
    """Features of the sample that share a column with another one."""
    sharing_estimated: float
    """The expected share of the topic's features that share a column."""
    d_recommended: int
    dominant: list[dict[str, Any]]
    like_ids: list[dict[str, Any]]
    ignored: dict[str, str]
    unmatched: list[str]
    """Paths in the settings that occur in no record of the sample."""
    bad: list[dict[str, Any]]

    def as_map(self) -> dict[str, Any]:
        return asdict(self)

    def warnings(self) -> list[str]:
        """The likely problems, one sentence each."""
        bad = sum(each["messages"] for each in self.bad)
        lines = [] if self.messages else ["there are no messages in the sample"]
        lines += [f"{bad} of {self.messages} messages are bad: {self.bad[0]['words']}"] if bad else []
        lines += [f"input.features names {path}, which no record of the sample has" for path in self.unmatched]
        lines += [
            f"{each['field']} has {each['values']} values in {each['rows']} rows: an id or a time? Consider ignore"
            for each in self.like_ids
        ]
        lines += [
            f"{each['feature']} has {each['share']:.0%} of the squared norm: consider log1p, scale, clip or ignore"
            for each in self.dominant
        ]
        if self.sharing_estimated > SHARING_MAX and self.d < self.d_recommended:
            lines.append(
                f"{self.sharing_estimated:.0%} of the features share a column: consider sketch.d = {self.d_recommended}"
            )
        return lines


@dataclass
class _Sample:
    """Counters over the records of the sample."""

    rows: int = 0
    seen: Counter[str] = field(default_factory=Counter)
    squares: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    values: defaultdict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    texts: Counter[str] = field(default_factory=Counter)
    ignored: dict[str, str] = field(default_factory=dict)
    first: list[list[tuple[str, float]]] = field(default_factory=list)
    paths: set[str] = field(default_factory=set)
    bad: dict[tuple[str, str], tuple[str, list[int]]] = field(default_factory=dict)
    """By reason and text without numbers: the text of the first bad message, and the positions of all."""

    def add(self, pairs: list[tuple[str, float]]) -> None:
        self.rows += 1
        if len(self.first) < FIRST_ROWS:
            self.first.append(pairs)
        for name, value in pairs:
            self.seen[name] += 1
            self.squares[name] += value * value
        for name in {name for name, _ in pairs if "=" in name}:
            path, _, text = name.partition("=")
            self.values[path].add(text)
        for path in {name.partition("=")[0] for name, _ in pairs if "=" in name}:
            self.texts[path] += 1


def preview(messages: Iterable[bytes], reader: Reader, columns: HashedColumns, limits: RowLimits) -> Preview:
    """`columns` hold the mapping to check. A message is bad if a worker's decoder refuses it."""
    assert columns.mapping is not None
    sample, count, decoder = _Sample(), 0, RecordDecoder(reader)
    for number, message in enumerate(messages):
        count = number + 1
        for _, error in decoder.decode([message], columns, limits).bad:
            sample.bad.setdefault((error.reason, _DIGITS.sub("0", str(error))), (str(error), []))[1].append(number)
            break
        else:
            records = columns.mapping.records_of(reader.read(message))
            _take(sample, records, columns.mapping, limits.string_bytes_max)
    return _judged(sample, count, columns, columns.mapping.unmatched(sample.paths) if sample.rows else [])


def _take(sample: _Sample, records: list[Mapping[str, Any]], mapping: FeatureMap, path_bytes_max: int) -> None:
    flattened, rows = Flattener(mapping, path_bytes_max), []
    for record in records:
        start = len(flattened.names)
        flattened.add(record)
        rows.append(list(zip(flattened.names[start:], flattened.values[start:], strict=True)))
        _note_ignored(sample.ignored, "", record, mapping, path_bytes_max)
        sample.paths.update(islice(_paths("", record), _PATHS_MAX))
    for row in rows:
        sample.add(row)


def _paths(prefix: str, record: Mapping[str, Any]) -> Iterator[str]:
    """The paths of all fields, including null fields and items of lists."""
    for key, value in record.items():
        path = f"{prefix}{key}"
        yield path
        for item in value if isinstance(value, list) else (value,):
            if isinstance(item, Mapping):
                yield from _paths(f"{path}.", item)


def _note_ignored(
    ignored: dict[str, str], prefix: str, record: Mapping[str, Any], mapping: FeatureMap, path_bytes_max: int
) -> None:
    for key, value in record.items():
        if len(ignored) >= _PLACES_MAX:
            return
        path = f"{prefix}{key}"
        rule = mapping.rule(path, path_bytes_max)
        if rule.pruned:
            ignored[path] = "ignore" if rule.options.kind == "ignore" else "excluded"
        elif isinstance(value, Mapping):
            _note_ignored(ignored, f"{path}.", value, mapping, path_bytes_max)
        elif isinstance(value, bytes):
            ignored[path] = "bytes"
        elif not rule.wanted:
            ignored[path] = "not included"


def _judged(sample: _Sample, messages: int, columns: HashedColumns, unmatched: list[str]) -> Preview:
    names = list(sample.seen)
    of_features, signs = signed_columns(names, columns.d, columns.seed)
    places = dict(zip(names, zip(of_features.tolist(), signs.tolist(), strict=True), strict=True))
    crowded = Counter(of_features.tolist())
    estimated = chao(sample.seen)
    whole = math.fsum(sample.squares.values())
    strongest = sorted(sample.squares.items(), key=lambda item: -item[1])[:5]
    return Preview(
        messages=messages,
        rows=sample.rows,
        first_rows=[
            [{"feature": name, "column": places[name][0], "value": value * places[name][1]} for name, value in row]
            for row in sample.first
        ],
        features=len(names),
        features_estimated=estimated,
        d=columns.d,
        sharing=sum(count for count in crowded.values() if count > 1),
        sharing_estimated=sharing(estimated, columns.d),
        d_recommended=recommended(estimated),
        dominant=[
            {"feature": name, "share": square / whole} for name, square in strongest if square > DOMINANT_SHARE * whole
        ],
        like_ids=[
            {"field": path, "values": len(values), "rows": sample.texts[path]}
            for path, values in sorted(sample.values.items())
            if sample.texts[path] >= ID_ROWS and len(values) >= ID_SHARE * sample.texts[path]
        ],
        ignored=sample.ignored,
        unmatched=unmatched,
        bad=[
            {"reason": reason, "words": words, "messages": len(numbers), "first": numbers[0]}
            for (reason, _), (words, numbers) in sorted(sample.bad.items(), key=_count_of_bad)[:_PLACES_MAX]
        ],
    )


def _count_of_bad(item: tuple[Any, tuple[str, list[int]]]) -> int:
    return -len(item[1][1])


def chao(seen: Mapping[str, int]) -> int:
    """A lower bound of the number of features, from those that occurred once and twice (Chao 1984, bias-corrected)."""
    once = sum(count == 1 for count in seen.values())
    twice = sum(count == 2 for count in seen.values())
    return len(seen) + round(once * (once - 1) / (2 * (twice + 1)))


def sharing(features: int, d: int) -> float:
    """The expected share of features that share their column with another feature."""
    return 1 - (1 - 1 / d) ** max(features - 1, 0)


def recommended(features: int) -> int:
    """The smallest power of two, up to D_MAX, at which few features share a column."""
    d = 2
    while d < D_MAX and sharing(features, d) > SHARING_MAX:
        d *= 2
    return d

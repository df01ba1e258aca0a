"""Loads settings from their sources: a validated tree with the origin of each value, or all errors at once.

No message contains a secret: pydantic's messages, which quote the value, are translated.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from sfd_stream.config import checks, kafka_properties
from sfd_stream.config.model import HttpSettings, Settings
from sfd_stream.config.secrets import is_secret, mask, mask_url
from sfd_stream.config.sources import OPEN_SECTIONS, PREFIX, TOP_LEVEL, Given, Sources
from sfd_stream.errors import SettingsError

DEFAULT_ORIGIN: Final = "default"

SECTIONS: Final[Mapping[str, type[BaseModel]]] = {
    name: field.annotation
    for name, field in Settings.model_fields.items()
    if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel)
}
KEYS: Final = (*TOP_LEVEL, *(f"{section}.{key}" for section, model in SECTIONS.items() for key in model.model_fields))


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective settings, and the origin of each key that was set."""

    settings: Settings
    origins: Mapping[str, str]

    def origin(self, key: str) -> str:
        return self.origins.get(key, DEFAULT_ORIGIN)


def read_sources(file: Path | None, *, environ: Mapping[str, str], overrides: Iterable[str] = ()) -> Sources:
    """The three sources in order: the file, the environment, the flags."""
    sources = Sources()
    if file is not None:
        sources.add_file(file)
    if "" in sources.unread:  # missing keys may be in the file that can't be read
        raise SettingsError("\n".join(sources.problems), problems=tuple(sources.problems))
    sources.add_environment(environ)
    sources.add_overrides(overrides)
    return sources


def load(file: Path | None, *, environ: Mapping[str, str], overrides: Iterable[str] = ()) -> Effective:
    """The effective settings. Raises SettingsError with one line for each error in any source."""
    return resolve(read_sources(file, environ=environ, overrides=overrides))


@dataclass(frozen=True, slots=True)
class Some:
    """Settings of a command that is not a worker: librdkafka's properties, a few sections, and all other given keys."""

    kafka: Mapping[str, Any]
    sections: Mapping[str, Any]
    given: Mapping[str, Any]


def load_some(
    file: Path | None, *, environ: Mapping[str, str], overrides: Iterable[str] = (), sections: Collection[str] = ()
) -> Some:
    """Validates `kafka` and these sections as for a worker. Nothing else is required. Unknown keys are errors."""
    sources = read_sources(file, environ=environ, overrides=overrides)
    newest = sources.newest()
    problems = list(sources.problems)
    known = _known(newest, problems)
    properties = {given.path[1]: given.value for given in newest.values() if given.path[0] == "kafka"}
    problems += [
        f"kafka.{name} {text} ({newest[f'kafka.{name}'].origin})"
        for name, text in kafka_properties.problems(properties)
    ]
    wanted = {name: SECTIONS[name] for name in sections}
    good = {key: given for key, given in known.items() if given.path[0] in wanted}
    _judge_alone(good, problems, sources, wanted)
    _raise_if_any(problems)
    tree = _tree(good.values())
    parts = {name: model.model_validate(tree.get(name, {})) for name, model in wanted.items()}
    return Some(properties, parts, {key: given.value for key, given in newest.items()})


def load_http(file: Path | None, *, environ: Mapping[str, str], overrides: Iterable[str] = ()) -> HttpSettings:
    """The address of a worker's port, for commands that only request it. Other settings are not validated."""
    newest = read_sources(file, environ=environ, overrides=overrides).newest().values()
    given = {item.path[1]: item for item in newest if item.path[0] == "http"}
    try:
        return HttpSettings.model_validate({name: item.value for name, item in given.items()})
    except ValidationError as error:
        key = f"http.{error.errors()[0]['loc'][0]}"
        raise SettingsError(f'{key} is wrong; "sfd-stream config check" prints the reason') from None


def resolve(sources: Sources) -> Effective:
    """Validates each key of the sources alone, then all keys together."""
    problems = list(sources.problems)
    good = _known(sources.newest(), problems)
    bad = _judge_alone(good, problems, sources)
    settings = _build({key: given for key, given in good.items() if key not in bad})
    problems.extend(
        f"{found.keys[0]} {found.text}{_places(found.keys, good)}"
        for found in checks.problems(settings)
        if not bad.intersection(found.keys) and sources.was_read(found.keys[0])
    )
    _raise_if_any(problems)
    return Effective(Settings.model_validate(_tree(good.values())), {key: given.origin for key, given in good.items()})


def _raise_if_any(problems: list[str]) -> None:
    if not problems:
        return
    head = "1 setting is wrong" if len(problems) == 1 else f"{len(problems)} settings are wrong"
    raise SettingsError("\n".join([f"{head}:", *(f"  {line}" for line in problems)]), problems=tuple(problems))


def _known(newest: Mapping[str, Given], problems: list[str]) -> dict[str, Given]:
    """The values of known keys. Each other key becomes a problem."""
    unknown = {key: line for key, given in newest.items() if (line := _unknown(given))}
    problems += unknown.values()
    return {key: given for key, given in newest.items() if key not in unknown}


def _unknown(given: Given) -> str | None:
    """The error line for an unknown key, with the nearest known key."""
    if given.path[0] in OPEN_SECTIONS and len(given.path) == 2 and given.path[1]:
        return None
    if given.path[:2] == ("checkpoint", "options"):
        wrong = f"{given.spelled} takes one option at a time, like {given.spelled}.region=..."
        return None if len(given.path) == 3 else wrong
    if given.key in KEYS:
        return None
    nearest = _nearest(given)
    names = " or ".join(_spell_like(given, key) for key in nearest)
    hint = f"; did you mean {names}?" if nearest else '; see "sfd-stream config show"'
    place = "" if given.origin == given.spelled else f" ({given.origin})"
    return f"{given.spelled} is not a setting{hint}{place}"


def _nearest(given: Given) -> list[str]:
    """A key of its section with a similar spelling, or the same key in other sections."""
    section, name = given.path[0], ".".join(given.path[1:])
    for near in difflib.get_close_matches(section, [*OPEN_SECTIONS, *SECTIONS], n=1, cutoff=0.7):
        found = [name] if near in OPEN_SECTIONS else difflib.get_close_matches(name, SECTIONS[near].model_fields, n=1)
        if found:
            return [f"{near}.{found[0]}"]
    return [key for key in KEYS if key.split(".")[-1] == given.path[-1]]


def _spell_like(given: Given, key: str) -> str:
    return PREFIX + key.upper().replace(".", "__") if given.spelled.startswith(PREFIX) else key


def _places(keys: tuple[str, ...], good: Mapping[str, Given]) -> str:
    origins = dict.fromkeys(good[key].origin for key in keys if key in good)
    return f" ({', '.join(origins)})" if origins else ""


def _judge_alone(
    good: Mapping[str, Given],
    problems: list[str],
    sources: Sources,
    sections: Mapping[str, type[BaseModel]] = SECTIONS,
) -> set[str]:
    """Validates each section by its model. Returns the keys that are wrong or missing."""
    bad: set[str] = set()
    tree = _tree(good.values())
    for section, model in sections.items():
        try:
            model.model_validate(tree.get(section, {}))
        except ValidationError as error:
            for detail in error.errors(include_url=False):
                key = f"{section}.{detail['loc'][0]}"
                if key in bad:
                    continue  # a union reports an error for each of its members
                bad.add(key)
                if detail["type"] == "missing" and not sources.was_read(key):
                    continue  # it was given, and its error is reported already
                problems.append(f"{key} {_explain(key, detail)}" + _places((key,), good))
    return bad


def _build(good: Mapping[str, Given]) -> Settings:
    """The tree for the common checks: examples replace the wrong values."""
    tree = _tree(good.values())
    for section, model in SECTIONS.items():
        for name, field in model.model_fields.items():
            if field.is_required():
                tree.setdefault(section, {}).setdefault(name, (field.examples or [None])[0])
    parts: dict[str, Any] = {name: model.model_validate(tree.get(name, {})) for name, model in SECTIONS.items()}
    alone = {name: tree[name] for name in TOP_LEVEL if name in tree}
    given = {name: tree.get(name, {}) for name in OPEN_SECTIONS}
    return Settings.model_construct(**given, **alone, **parts)


def _tree(given: Iterable[Given]) -> dict[str, Any]:
    tree: dict[str, Any] = {}
    for item in given:
        node = tree
        for part in item.path[:-1]:
            node = node.setdefault(part, {})
        node[item.path[-1]] = _plain(item)
    return tree


def _plain(given: Given) -> Any:
    """The plain value. Environment and flags hold texts: an empty text or null means None if the key may be None."""
    section, key = given.path[0], given.path[-1]
    if given.path[0] in TOP_LEVEL:
        return None if given.value in ("", "null") else given.value
    if section in SECTIONS and given.value in ("", "null") and key in SECTIONS[section].model_fields:
        annotation = SECTIONS[section].model_fields[key].annotation
        if get_origin(annotation) in (Union, UnionType) and type(None) in get_args(annotation):
            return None
    return given.value


def _explain(key: str, detail: ErrorDetails) -> str:
    """The error of a value, in our words."""
    kind, context = detail["type"], detail.get("ctx", {})
    text = {
        "missing": "is required",
        "greater_than": "must be more than {gt}",
        "greater_than_equal": "must be at least {ge}",
        "less_than": "must be less than {lt}",
        "less_than_equal": "must be at most {le}",
        "int_parsing": "must be a whole number",
        "int_type": "must be a whole number",
        "int_from_float": "must be a whole number",
        "float_parsing": "must be a number",
        "float_type": "must be a number",
        "finite_number": "must be a finite number",
        "bool_parsing": "must be true or false",
        "bool_type": "must be true or false",
        "string_type": "must be a text",
        "string_too_short": "must not be empty",
        "value_error": "{error}",
        "literal_error": "must be one of {expected}",
    }.get(kind, detail["msg"])
    words = text.format(**context)
    return (words.replace("'", "") if kind == "literal_error" else words) + _instead_of(key, kind, detail["input"])


def _instead_of(key: str, kind: str, value: Any) -> str:
    if kind in ("missing", "bool_for_other") or is_secret(key) or not isinstance(value, str | int | float | None):
        return ""
    nearest = difflib.get_close_matches(str(value), _choices(key), n=1) if kind == "literal_error" else []
    masked = mask_url(str(value)) if key.endswith(".url") else mask(key, value)
    return f", not {masked!r}" + (f"; did you mean {nearest[0]}?" if nearest else "")


def _choices(key: str) -> tuple[str, ...]:
    section, name = key.split(".")
    annotation = SECTIONS[section].model_fields[name].annotation
    return get_args(annotation) if get_origin(annotation) is Literal else ()

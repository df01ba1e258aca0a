"""Reads the sources of settings: a YAML file, the environment, flags. Each value keeps its origin.

Only the form is checked here. A later source overrides an earlier one, key by key.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import yaml

from sfd_stream.config import kafka_properties
from sfd_stream.config.secrets import mask_url

PREFIX: Final = "SFD_"
_SEPARATOR: Final = "__"
TOP_LEVEL: Final = ("kafka_oauth_callback",)
"""Settings outside of all sections."""
OPEN_SECTIONS: Final = ("kafka", "schema_registry")
"""Sections whose keys are properties of other libraries: the text after the section is one name."""
STRUCTURED: Final = (("input", "features"), ("score", "when"))
"""Settings whose value is a mapping."""
_FILE_MAX_BYTES: Final = 2**20


@dataclass(frozen=True, slots=True)
class Given:
    """One value from a source, with a path like ("sketch", "ell") or ("kafka", "group.id")."""

    path: tuple[str, ...]
    value: Any
    origin: str
    spelled: str
    """The key as it was written: a dotted name, or the name of an environment variable."""

    @property
    def key(self) -> str:
        return ".".join(self.path)


@dataclass(slots=True)
class Sources:
    """All values in order of precedence, and one line for each value that could not be read."""

    given: list[Given] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    """Keys and sections that could not be read. Keys below them do not count as missing. "" is a whole file."""

    def was_read(self, key: str) -> bool:
        return not any(not above or f"{key}.".startswith(f"{above}.") for above in self.unread)

    def cannot_read(self, path: tuple[str, ...], problem: str) -> None:
        self.unread.append(".".join(path))
        self.problems.append(problem)

    def newest(self) -> dict[str, Given]:
        """The effective value of each key."""
        return {item.key: item for item in self.given}

    def add_file(self, file: Path) -> None:
        """Adds the settings of a YAML file."""
        try:
            with file.open("rb") as stream:
                text = stream.read(_FILE_MAX_BYTES + 1)
        except OSError as error:
            self.cannot_read((), f"{file}: {error.strerror}; give the path of a readable file to --config")
            return
        if len(text) > _FILE_MAX_BYTES:
            self.cannot_read((), f"{file}: larger than 1 MiB, so surely not a settings file")
            return
        try:
            self._add_yaml(text, str(file))
        except yaml.YAMLError as error:
            self.cannot_read((), f"{_place_of(error, str(file))}: not YAML: {_reason_of(error)}")

    def add_environment(self, environ: Mapping[str, str]) -> None:
        """Adds the variables `SFD_SECTION__KEY`. Names without the double underscore are not settings."""
        for key in TOP_LEVEL:
            name = PREFIX + key.upper()
            if name in environ:
                self.given.append(Given((key,), environ[name], name, name))
        for name in sorted(environ):
            if not name.startswith(PREFIX) or _SEPARATOR not in name:
                continue
            section, *rest = name.removeprefix(PREFIX).split(_SEPARATOR)
            parts = _parts_of(section.lower(), rest)
            path = (section.lower(), *(part.lower() for part in parts))
            self.given.append(Given(path, environ[name], name, name))

    def add_overrides(self, overrides: Iterable[str]) -> None:
        """Adds the values of --set, `section.key=value`."""
        for text in overrides:
            key, equals, value = text.partition("=")
            path = _path_of(key.strip())
            if not equals or (len(path) < 2 and path[0] not in TOP_LEVEL):
                self.problems.append(f"--set {mask_url(key)}: write it as --set section.key=value")
                continue
            self.given.append(Given(path, value, "--set", key.strip()))

    def _add_yaml(self, text: bytes, name: str) -> None:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            for path, node, line in _leaves(loader, root, (), self, name):
                origin = f"{name}:{line}"
                if isinstance(node, yaml.ScalarNode) or path in STRUCTURED:
                    _find_all_duplicates(node, path, self.problems, name)
                    key = ".".join(path)
                    self.given.append(Given(path, loader.construct_object(node, deep=True), origin, key))
                else:
                    self.cannot_read(path, f"{'.'.join(path)}: must be a single value ({origin})")
        finally:
            loader.dispose()


class _Loader(yaml.SafeLoader):
    """Loads plain YAML values. A date stays a text."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the parent's attribute, copied and not changed in place
        letter: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
        for letter, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


def _path_of(key: str) -> tuple[str, ...]:
    """The path of a key. After an open section or checkpoint.options, the rest is one name."""
    section, *rest = key.split(".")
    if section in OPEN_SECTIONS:
        return (section, ".".join(rest)) if rest else (section,)
    if section == "checkpoint" and rest[:1] == ["options"] and len(rest) > 2:
        return section, "options", ".".join(rest[1:])
    return section, *rest


def _parts_of(section: str, rest: list[str]) -> list[str]:
    """The parts of an environment variable's name after the section. In properties, its underscores are dots."""
    if section == "kafka":
        return [kafka_properties.property_of("_".join(rest))]
    return ["_".join(rest).replace("_", ".")] if section in OPEN_SECTIONS else rest


def _is_mapping_key(path: tuple[str, ...]) -> bool:
    """Whether this key holds a mapping, not a value."""
    return not path or (len(path) == 1 and path[0] not in TOP_LEVEL) or path == ("checkpoint", "options")


def _leaves(
    loader: _Loader, node: yaml.Node | None, path: tuple[str, ...], sources: Sources, name: str
) -> Iterator[tuple[tuple[str, ...], yaml.Node, int]]:
    """(path, node, line) of every value below the node."""
    if node is None or (isinstance(node, yaml.ScalarNode) and node.tag.endswith(":null") and _is_mapping_key(path)):
        return  # an empty file or section
    if not isinstance(node, yaml.MappingNode):
        line = node.start_mark.line + 1
        sources.cannot_read(path, f"{'.'.join(path) or name}: must hold `key: value` lines ({name}:{line})")
        return
    _find_duplicates(node, path, sources.problems, name)
    loader.flatten_mapping(node)
    for key_node, value_node in node.value:
        line = key_node.start_mark.line + 1
        below = (*path, str(key_node.value))
        if _is_mapping_key(below):
            yield from _leaves(loader, value_node, below, sources, name)
        elif isinstance(value_node, yaml.MappingNode) and path and path[0] in OPEN_SECTIONS:
            words = "write the whole name as one key, like ssl.ca.location"
            sources.cannot_read(below, f"{'.'.join(below)}: {words} ({name}:{line})")
        else:
            yield below, value_node, line


def _find_duplicates(node: yaml.MappingNode, path: tuple[str, ...], problems: list[str], name: str) -> None:
    """Reports duplicate keys: YAML would silently use the last one."""
    lines: dict[str, int] = {}
    for key_node, _ in node.value:
        key, line = str(key_node.value), key_node.start_mark.line + 1
        if key in lines:
            problems.append(f"{'.'.join((*path, key))}: given twice, first in line {lines[key]} ({name}:{line})")
        lines.setdefault(key, line)


def _find_all_duplicates(node: yaml.Node, path: tuple[str, ...], problems: list[str], name: str) -> None:
    if isinstance(node, yaml.MappingNode):
        _find_duplicates(node, path, problems, name)
        for key_node, value_node in node.value:
            _find_all_duplicates(value_node, (*path, str(key_node.value)), problems, name)


def _place_of(error: yaml.YAMLError, name: str) -> str:
    mark = getattr(error, "problem_mark", None)
    return name if mark is None else f"{name}:{mark.line + 1}"


def _reason_of(error: yaml.YAMLError) -> str:
    """The parser's reason without its excerpt of the file, which may hold a secret."""
    return str(getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable characters")

"""Settings for people and tools: the effective values with origins, the annotated example, the JSON schema.

The example is generated from the model. A test fails if the file in the repository is out of date.
"""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from typing import Any, Final

from sfd_stream.config.load import SECTIONS, Effective
from sfd_stream.config.model import Settings
from sfd_stream.config.secrets import mask
from sfd_stream.config.sources import TOP_LEVEL
from sfd_stream.config.types import Thresholds, size_text
from sfd_stream.wire.features import FeatureMap

_HEAD: Final = """\
# Every setting, its default and a sentence, as "sfd-stream config schema --example" prints it.
# Only what has no default must be given: it is marked "required" and has an example here.
# The environment overrides this file (SFD_SKETCH__ELL=100, SFD_KAFKA__BOOTSTRAP_SERVERS=host:9092), and
# --set sketch.ell=100 overrides both. Sizes may be written as 1048576, 512MiB or 10MB; times are in seconds.
"""
_WIDTH: Final = 110


def effective_rows(effective: Effective) -> Iterator[tuple[str, Any, str]]:
    """(key, masked value, origin) of every effective setting."""
    for section, part in effective.settings:
        if section in TOP_LEVEL:
            yield section, mask(section, part), effective.origin(section)
            continue
        items = part.items() if isinstance(part, Mapping) else part
        for name, value in items:
            key = f"{section}.{name}"
            if isinstance(value, Mapping):
                for option, item in value.items():
                    yield f"{key}.{option}", mask(option, item), effective.origin(f"{key}.{option}")
                if value:
                    continue
                value = {}  # noqa: PLW2901 - an empty mapping is shown as such
            elif isinstance(value, FeatureMap | Thresholds):
                value = value.described()  # noqa: PLW2901 - as it is written
            yield key, mask(name, value), effective.origin(key)


def schema() -> dict[str, Any]:
    """The JSON schema of a settings file."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **Settings.model_json_schema()}


def example() -> str:
    """A settings file with every key, its default and its description. It is valid without changes."""
    kafka = Settings.model_fields["kafka"]
    lines = [_HEAD, "kafka:", *_comment(f"{kafka.description}")]
    lines += [f"  {name}: {value}" for name, value in (kafka.examples or [{}])[0].items()]
    for name in ("schema_registry", *TOP_LEVEL):
        field = Settings.model_fields[name]
        lines += ["", *_comment(f"{field.description}", indent=""), f"{name}: {default_text(name, field.default)}"]
    for section, model in SECTIONS.items():
        lines += ["", f"# {model.__doc__}", f"{section}:"]
        for name, field in model.model_fields.items():
            example = field.examples[0] if field.examples else field.default  # an example where no default is usable
            lines += _comment(f"{field.description}{' (required)' if field.is_required() else ''}")
            lines.append(f"  {name}: {default_text(name, example)}")
    return "\n".join(lines) + "\n"


def _comment(text: str, indent: str = "  ") -> list[str]:
    start = f"{indent}# "
    return textwrap.wrap(text, _WIDTH, initial_indent=start, subsequent_indent=start, break_on_hyphens=False)


def default_text(name: str, value: Any) -> str:
    """A value as written in a settings file."""
    if name.endswith("_bytes"):
        return size_text(value)
    return value if isinstance(value, str) else json.dumps(value)

"""`python -m tests.docs.references`: writes the reference pages of settings and commands from their declarations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import typer

from sfd_stream.cli.app import _app
from sfd_stream.config.describe import default_text
from sfd_stream.config.load import SECTIONS
from sfd_stream.config.model import Settings
from sfd_stream.config.sources import TOP_LEVEL
from tests.docs.pages import ROOT

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

REFERENCE = ROOT / "docs" / "reference"
MADE = "Made by `python -m tests.docs.references`; a test fails when it is out of date."


def settings_page() -> str:
    lines = ["# Settings", "", f"Every setting, its default and its meaning. {MADE}", ""]
    lines.append(
        "A value comes from the default, then the file of `--config`, then the environment"
        " (`SFD_SKETCH__ELL=100` for `sketch.ell`), then `--set sketch.ell=100`; the last one wins."
        " `sfd-stream config show` prints every value and its origin. Sizes may be written as `1048576`, `512MiB` or"
        " `10MB`; times are in seconds. [example.yaml](../../config/example.yaml) is the same as a settings file."
    )
    for name in ("kafka", "schema_registry", *TOP_LEVEL):
        lines += ["", f"## {name}", "", f"{Settings.model_fields[name].description}"]
    for section, model in SECTIONS.items():
        lines += ["", f"## {section}", "", f"{model.__doc__}", "", "| setting | default | meaning |", "|---|---|---|"]
        lines += [_setting(f"{section}.{name}", name, field) for name, field in model.model_fields.items()]
    return "\n".join(lines) + "\n"


def _setting(key: str, name: str, field: FieldInfo) -> str:
    default = "required" if field.is_required() else f"`{default_text(name, field.default)}`"
    return f"| `{key}` | {_cell(default)} | {_cell(field.description or '')} |"


def commands_page() -> str:
    lines = ["# Commands", "", f"What `sfd-stream COMMAND --help` prints, on one page. {MADE}"]
    for path, command in _commands(typer.main.get_command(_app())):
        lines += ["", f"{'#' * (1 + len(path))} {' '.join(path)}", "", *_paragraphs(command.help or "")]
        lines += _parameters(command)
    return "\n".join(lines) + "\n"


def _commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    if path:
        yield path, command
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from _commands(inner, (*path, name))


def _paragraphs(text: str) -> list[str]:
    """Help as Markdown: an example becomes code, a paragraph one line."""
    text = re.sub(r"\[/?[a-z]+\]", "", text).replace("\b", "")
    found = [" ".join(part.split()) for part in text.split("\n\n") if part.strip()]
    return "\n\n".join(re.sub(r"^(.*?:) (sfd-stream .+)$", r"\1 `\2`", part) for part in found).split("\n")


def _parameters(command: click.Command) -> list[str]:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    shown = [parameter for parameter in shown if parameter.name != "help"]
    rows = [f"| {_names(p)} | {_cell(getattr(p, 'help', None) or '')} | {_cell(_default(p))} |" for p in shown]
    return ["", "| option | meaning | default |", "|---|---|---|", *rows] if rows else []


def _names(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return f"`{(parameter.metavar or parameter.name or '').upper()}`"
    return ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))


def _default(parameter: click.Parameter) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    return "" if value in (None, False, [], ()) or callable(value) else f"`{value}`"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


PAGES = {"settings.md": settings_page, "commands.md": commands_page}

if __name__ == "__main__":
    for name, made in PAGES.items():
        (REFERENCE / name).write_text(made(), encoding="utf-8")

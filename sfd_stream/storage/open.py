"""Opens the store of `checkpoint.url`. The error for a wrong URL says how to write it.

    file:///var/lib/sfd          a folder
    s3://bucket/prefix           S3 and compatible     endpoint, region, access_key_id, secret_access_key, ...
    gs://bucket/prefix           Google Cloud Storage  service_account, application_credentials, ...
    az://container/prefix        Azure Blob Storage    account_name, account_key, ...
    memory://name                this process only

Options have the names of obstore's S3Store, GCSStore and AzureStore (also `virtual_hosted_style_request`). All three
also take `allow_http`, `connect_timeout_s`, `timeout_s`, `retry_s` and `max_retries`. Options that are not given come
from the usual environment (AWS_*, GOOGLE_*, AZURE_*) and from the identity of the machine or pod.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, unquote, urlsplit

from sfd_stream.errors import SettingsError, StoreRefusedError
from sfd_stream.storage.contract import Store, check_prefix
from sfd_stream.storage.disk import Access, DiskStore
from sfd_stream.storage.memory import shared_memory_store
from sfd_stream.storage.objects import SCHEMES, open_objects

if TYPE_CHECKING:
    from collections.abc import Mapping

_NO_OPTIONS: Mapping[str, str] = MappingProxyType({})
_KNOWN = "file:///folder, s3://bucket/prefix, gs://bucket/prefix, az://container/prefix"


def open_store(url: str, options: Mapping[str, str] = _NO_OPTIONS, *, file_access: Access = "owner") -> Store:
    """The store at `url`. No request is made yet: a wrong password causes an error at the first call.

    `file_access`: who may use the files that are written to a folder.
    """
    parts = _split(url)
    if parts.scheme in SCHEMES:
        return _open_objects(parts, options)
    if options:
        raise SettingsError(f"{parts.scheme}:// takes no store options, but {', '.join(sorted(options))} is set")
    if parts.scheme == "file":
        return DiskStore(_folder(url, parts), access=file_access)
    if not (name := f"{parts.netloc}{parts.path}"):
        raise SettingsError("checkpoint.url 'memory://' has no name; write 'memory://some-name'")
    return shared_memory_store(name)


def _split(url: str) -> SplitResult:
    """The URL's parts. A message never repeats a part of a URL that may contain a secret."""
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise SettingsError(f"checkpoint.url is no URL ({error}); write one of {_KNOWN}") from None
    if not parts.scheme:
        if "@" in url:
            raise SettingsError(f"checkpoint.url has no scheme; write one of {_KNOWN}")
        raise SettingsError(
            f"checkpoint.url {url!r} has no scheme; write {Path(url).absolute().as_uri()!r} for that folder"
        )
    if parts.scheme not in {*SCHEMES, "file", "memory"}:
        raise SettingsError(
            f"checkpoint.url has the scheme {parts.scheme!r}, which is not supported; write one of {_KNOWN}"
        )
    if "@" in parts.netloc:
        raise SettingsError(
            "checkpoint.url holds credentials; take them out and give them as store options or environment"
        )
    if parts.query or parts.fragment:
        raise SettingsError("checkpoint.url has a part after ? or #; give it as a store option, or write %3F and %23")
    return parts


def _masked(url: str) -> str:
    """The URL in a message. A URL with an @ may contain credentials, even if it is malformed."""
    return "(which may hold credentials)" if "@" in url else repr(url)


def _folder(url: str, parts: SplitResult) -> Path:
    if parts.netloc not in {"", "localhost"}:
        below = f"{parts.netloc}{parts.path}"
        raise SettingsError(
            f"checkpoint.url {url!r} names a machine, {parts.netloc!r}, not a folder; write "
            f"{f'file:///{below}'!r}, or {Path(below).absolute().as_uri()!r} for the folder below this one"
        )
    path = Path(unquote(parts.path))
    if not path.is_absolute() or path == Path("/"):
        raise SettingsError(
            f"checkpoint.url {_masked(url)} names no folder; write it in full, as in 'file:///var/lib/sfd-stream'"
        )
    if ".." in path.parts or "\0" in str(path):
        raise SettingsError(f"checkpoint.url {_masked(url)} must be a plain path, without '..'")
    return path


def _open_objects(parts: SplitResult, options: Mapping[str, str]) -> Store:
    if not parts.netloc:
        raise SettingsError(f"checkpoint.url names no bucket; write '{parts.scheme}://bucket/prefix'")
    try:
        prefix = check_prefix(parts.path.removeprefix("/"))
    except StoreRefusedError as error:
        raise SettingsError(f"checkpoint.url has a prefix that is not safe on every store: {error}") from None
    return open_objects(parts.scheme, parts.netloc, prefix, options)

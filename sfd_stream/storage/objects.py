"""Checkpoints in an object store (S3 and compatible ones, Google Cloud Storage, Azure Blob Storage), by obstore.

A request ends within `retry_s` + `timeout_s` (a list is one request for each thousand keys, a large put one for each 16
MiB). obstore repeats requests that failed on the network or with a 5xx, with exponential backoff and jitter. A repeated
create may find its own first attempt and raise ObjectExistsError: the caller compares the content.
"""

from __future__ import annotations

import contextlib
import re
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import obstore
from obstore import exceptions
from obstore.store import AzureStore, GCSStore, S3Store

from sfd_stream.errors import (
    ObjectExistsError,
    ObjectMissingError,
    SettingsError,
    StoreError,
    StoreRefusedError,
    StoreUnavailableError,
)
from sfd_stream.storage.contract import check_key, check_prefix

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from obstore.store import ClientConfig, RetryConfig

# A blob above this size is uploaded in parts, each with a timeout and retries of its own.
_PART_BYTES = 16 * 1024 * 1024
_LIST_CHUNK = 1000

_STATUS = re.compile(r"status code: (\d{3})")
_NO_SUCH_BUCKET = re.compile(r"NoSuchBucket|ContainerNotFound|bucket does not exist|ContainerBeingDeleted")
# S3 answers 409 to a create during another one, and neither is decided yet; obstore reports "exists".
_UNDECIDED = re.compile(r"ConditionalRequestConflict|OperationAborted")
_WRONG_FOR_GOOD = re.compile(r"configured region|BadScheme")
_HTTP_KIND = re.compile(r"HttpError \{\s*kind: (\w+)")
_MAY_PASS = frozenset({408, 409, 425, 429})
_QUERY = re.compile(r"\?[^\s\"'<>]+")


_REMOTES: dict[str, tuple[Any, dict[str, str]]] = {
    "s3": (S3Store, {"disable_bulk_delete": "true"}),
    "gs": (GCSStore, {}),
    "az": (AzureStore, {}),
}
"""By scheme: obstore's store and its options unless others are set. One request for one delete: many stores that are
compatible with S3 do not have its bulk delete."""
SCHEMES = frozenset(_REMOTES)


class ObjectStore:
    """`remote` is obstore's store for the bucket and prefix; `url` names it without credentials."""

    def __init__(self, remote: S3Store | GCSStore | AzureStore, url: str) -> None:
        self._remote = remote
        self.url = url

    def __repr__(self) -> str:
        return f"ObjectStore({self.url!r})"

    def create_if_absent(self, key: str, data: bytes) -> None:
        with self._named("create", check_key(key)):
            obstore.put(self._remote, key, data, mode="create")

    def put(self, key: str, data: bytes) -> None:
        with self._named("write", check_key(key)):
            in_parts = len(data) > _PART_BYTES
            obstore.put(self._remote, key, data, use_multipart=in_parts, chunk_size=_PART_BYTES)

    def get(self, key: str, *, max_bytes: int | None = None) -> bytes:
        check_key(key)
        try:
            with self._named("read", key):
                found = obstore.get(self._remote, key)
                if max_bytes is None or found.meta["size"] <= max_bytes:
                    return bytes(found.bytes())
                return bytes(obstore.get_range(self._remote, key, start=0, length=max_bytes + 1))
        except StoreRefusedError:
            if self._is_missing(key):
                raise ObjectMissingError(f"there is no {key} in {self.url}") from None
            raise

    def _is_missing(self, key: str) -> bool:
        """S3 answers 403 for a missing object if only a prefix may be listed: then the list decides."""
        with contextlib.suppress(StoreError):
            return key not in self.list(key.rpartition("/")[0])
        return False

    def list(self, prefix: str, *, start_after: str | None = None) -> list[str]:
        folder = check_prefix(prefix)
        with self._named("list", folder):
            pages = obstore.list(self._remote, folder or None, offset=start_after, chunk_size=_LIST_CHUNK)
            keys = sorted(found["path"] for page in pages for found in page)
        return [key for key in keys if start_after is None or key > start_after]

    def written_at_s(self, key: str) -> float:
        """When the object was written, by the store's own clock."""
        with self._named("read", check_key(key)):
            return obstore.head(self._remote, key)["last_modified"].timestamp()

    def delete(self, key: str) -> None:
        # Some stores report an error if the object does not exist, which is the wanted result.
        with contextlib.suppress(ObjectMissingError), self._named("delete", check_key(key)):
            obstore.delete(self._remote, key)

    @contextlib.contextmanager
    def _named(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        # obstore raises built-ins for what it has no name for: not found, not implemented, bad values.
        except (exceptions.BaseError, OSError, NotImplementedError, ValueError) as error:
            # Not chained: the original's text has request URLs, which may contain a signature.
            raise _translated(error, f"can't {verb} {key or 'anything'} in {self.url}", verb) from None


def open_objects(scheme: str, bucket: str, prefix: str, options: Mapping[str, str]) -> ObjectStore:
    """The store of a bucket or, on Azure, of a container."""
    kind, defaults = _REMOTES[scheme]
    url = f"{scheme}://{bucket}/{prefix}".rstrip("/")
    config, client, retry = _split(defaults | dict(options))
    with _settings(url):
        remote = kind(bucket, prefix=prefix or None, config=config, client_options=client, retry_config=retry)
    return ObjectStore(remote, url)


def _split(options: Mapping[str, str]) -> tuple[Any, ClientConfig, RetryConfig]:
    """Separates our own options from those of obstore's store. They limit how long a call may take: `timeout_s` is for
    one attempt, and attempts begin within `retry_s`.
    """
    rest = dict(options)
    allow_http = rest.pop("allow_http", "false").lower()
    if allow_http not in {"true", "false"}:
        raise SettingsError(f"the store option allow_http must be true or false, not {allow_http!r}")
    if allow_http == "false" and any(value.lower().startswith("http://") for value in rest.values()):
        raise SettingsError("the store's endpoint is plain http; write https, or set the option allow_http=true")
    client: ClientConfig = {
        "connect_timeout": timedelta(seconds=_positive(rest, "connect_timeout_s", 5.0)),
        "timeout": timedelta(seconds=_positive(rest, "timeout_s", 30.0)),
        "allow_http": allow_http == "true",
    }
    retry: RetryConfig = {
        "retry_timeout": timedelta(seconds=_positive(rest, "retry_s", 30.0)),
        "max_retries": int(_positive(rest, "max_retries", 8)),
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
    }
    return rest, client, retry


def _positive(options: dict[str, str], name: str, default: float) -> float:
    text = options.pop(name, None)
    try:
        value = default if text is None else float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < 86_400:
        raise SettingsError(f"the store option {name} must be a number between 0 and 86400, not {text!r}")
    return value


@contextlib.contextmanager
def _settings(url: str) -> Iterator[None]:
    try:
        yield
    except exceptions.UnknownConfigurationKeyError as error:
        raise SettingsError(f"{url}: {_first_line(error)}; see the store options in the documentation") from None
    except (exceptions.BaseError, ValueError, TypeError, OSError) as error:
        raise SettingsError(f"{url} can't be opened: {_first_line(error)}") from None


def _translated(error: Exception, what: str, verb: str) -> StoreError:
    text = str(error)
    message = f"{what}: {_first_line(error)}"
    if isinstance(error, exceptions.AlreadyExistsError):
        return StoreUnavailableError(message) if _UNDECIDED.search(text) else ObjectExistsError(message)
    missing = isinstance(error, FileNotFoundError)
    if _NO_SUCH_BUCKET.search(text) or (missing and verb not in {"read", "delete"}):
        return StoreRefusedError(f"{message}; create the bucket, or correct checkpoint.url")
    if missing:
        return ObjectMissingError(message)
    if _is_final(error, text):
        return StoreRefusedError(
            f"{message}; check the credentials, their rights (read, write, list, delete), region and endpoint"
        )
    return StoreUnavailableError(message)


def _is_final(error: Exception, text: str) -> bool:
    if isinstance(error, exceptions.PermissionDeniedError | exceptions.UnauthenticatedError):
        return True
    if isinstance(error, exceptions.NotSupportedError | NotImplementedError | ValueError):
        return True
    status = _STATUS.search(text)
    if status is None:
        return _WRONG_FOR_GOOD.search(text) is not None
    code = int(status.group(1))
    return code == 501 or (300 <= code < 500 and code not in _MAY_PASS and "RequestTimeout" not in text)


def _first_line(error: Exception) -> str:
    """The library's message without its debug dump, markup and request signatures."""
    text, _, dump = str(error).partition("\n\nDebug source")
    kind = _HTTP_KIND.search(dump)
    text = f"{text} ({kind.group(1).lower()})" if kind else text
    text = re.sub(r"<RequestId>.*?</RequestId>|<HostId>.*?</HostId>|<\?xml[^>]*>", " ", text)
    return " ".join(re.sub(r"<[^>]*>", " ", _QUERY.sub("", text)).split())[:500]

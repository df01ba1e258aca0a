"""The object store's own options, and how a library's error becomes one of ours. Real stores: test_contract.py."""

from __future__ import annotations

from datetime import timedelta

import pytest
from obstore import exceptions

from sfd_stream.errors import ObjectMissingError, SettingsError, StoreRefusedError, StoreUnavailableError
from sfd_stream.storage.objects import _first_line, _split, _translated


def test_our_options_are_taken_and_the_others_go_to_the_library() -> None:
    rest, client, retry = _split({"region": "eu", "timeout_s": "7", "max_retries": "2"})
    assert rest == {"region": "eu"}
    assert client["timeout"] == timedelta(seconds=7)
    assert retry["max_retries"] == 2


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"endpoint": "http://minio:9000"}, "plain http; write https, or set the option allow_http=true"),
        ({"allow_http": "yes"}, "must be true or false, not 'yes'"),
        ({"timeout_s": "-1"}, "timeout_s must be a number between 0 and 86400"),
    ],
)
def test_a_wrong_option_is_refused(options: dict[str, str], reason: str) -> None:
    with pytest.raises(SettingsError, match=reason):
        _split(options)


@pytest.mark.parametrize(
    ("error", "verb", "kind"),
    [
        (FileNotFoundError("no such key"), "read", ObjectMissingError),
        (FileNotFoundError("no such key"), "write", StoreRefusedError),
        (exceptions.PermissionDeniedError("403"), "read", StoreRefusedError),
        (exceptions.GenericError("status code: 503"), "read", StoreUnavailableError),
        (exceptions.GenericError("status code: 400"), "read", StoreRefusedError),
        (exceptions.GenericError("connection reset"), "list", StoreUnavailableError),
    ],
)
def test_an_error_is_missing_refused_or_unavailable(error: Exception, verb: str, kind: type[Exception]) -> None:
    assert type(_translated(error, "can't", verb)) is kind


def test_no_signature_of_a_request_reaches_a_message() -> None:
    assert "sig=" not in _first_line(ValueError("GET https://host/key?sv=1&sig=secret failed"))

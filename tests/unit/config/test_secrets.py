"""A secret reaches no repr, dump, error, schema or table, by whatever door it came in."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from pydantic import ValidationError

from sfd_stream.config import Settings, load
from sfd_stream.config.describe import effective_rows
from sfd_stream.config.secrets import MASK, is_secret, mask, mask_text, secret_values
from sfd_stream.errors import SettingsError
from sfd_stream.storage.open import open_store

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "hunter2-hunter2"
BASE = ["input.topic=rows", "sketch.d=100", "kafka.bootstrap.servers=h:1", "kafka.group.id=g"]
WITH_SECRETS = [
    *BASE,
    f"checkpoint.url=s3://key:{SECRET}@bucket/prefix",
    f"checkpoint.options.aws_secret_access_key={SECRET}",
    f"checkpoint.options.azure_storage_account_key={SECRET}",
    f"kafka.sasl.password={SECRET}",
    f"kafka.ssl.key.pem=-----BEGIN PRIVATE KEY-----\n{SECRET}\n-----END PRIVATE KEY-----",
    f"kafka.sasl.oauthbearer.client.secret={SECRET}",
    f"kafka.sasl.oauthbearer.config=principal=x password={SECRET}",
]


@pytest.fixture
def settings() -> Settings:
    return load(None, environ={}, overrides=WITH_SECRETS).settings


def test_no_way_of_showing_settings_shows_a_secret(settings: Settings) -> None:
    shown = [
        repr(settings),
        str(settings),
        f"{settings.kafka}",
        f"{settings.checkpoint!r}",
        settings.model_dump_json(),
    ]
    shown += [str(settings.model_dump()), json.dumps(settings.checkpoint.model_dump())]
    shown += [str(list(effective_rows(load(None, environ={}, overrides=WITH_SECRETS))))]
    for text in shown:
        assert SECRET not in text
        assert MASK in text


def test_the_program_itself_still_gets_the_secret(settings: Settings) -> None:
    assert settings.kafka["sasl.password"] == SECRET
    assert SECRET in settings.checkpoint.url
    assert settings.secret_values() >= {SECRET}
    assert pickle.loads(pickle.dumps(settings)) == settings  # noqa: S301 - ours, as when it goes to a worker process


@pytest.mark.parametrize(
    "entry", [*WITH_SECRETS[4:], f"kafka.sasl.pasword={SECRET}", f"checkpoint.urll=s3://a:{SECRET}@b"]
)
def test_no_error_repeats_a_secret(tmp_path: Path, entry: str) -> None:
    for overrides in ([entry], [entry, "sketch.ell=0"], [*BASE, entry, "snapshot.every_s=3"]):
        with pytest.raises(SettingsError) as caught:
            load(None, environ={}, overrides=overrides)
        assert SECRET not in str(caught.value)
    file = tmp_path / "s.yaml"
    key, _, value = entry.partition("=")
    file.write_text(f"{key}: [{value!r}\nx: '{SECRET}\n")
    with pytest.raises(SettingsError) as caught:
        load(file, environ={})
    assert SECRET not in str(caught.value)


def test_pydantics_own_errors_repeat_nothing() -> None:
    tree = {
        "kafka": {"sasl.password": SECRET},
        "input": {"topic": f"s3://a:{SECRET}@b"},
        "checkpoint": {"url": f"x://a:{SECRET}@b"},
    }
    with pytest.raises(ValidationError) as caught:
        Settings.model_validate(tree)
    assert SECRET not in str(caught.value)


def test_a_bad_url_with_credentials_is_refused_without_them() -> None:
    with pytest.raises(SettingsError, match=r"not 'ftp://\*\*\*@host/x'"):
        load(None, environ={}, overrides=[f"checkpoint.url=ftp://user:{SECRET}@host/x"])


@pytest.mark.parametrize(
    "url",
    [
        f"s3:/key:{SECRET}@bucket/prefix",
        f"s3//key:{SECRET}@bucket",
        f"s3:key:{SECRET}@bucket",
        f"key:{SECRET}@bucket",
        f"/key:{SECRET}@bucket",
        f"//key:{SECRET}@bucket",
        f"S4://key:a/b@{SECRET}@bucket/p",
        f"s4://key:two words {SECRET}@bucket",
        f"file://key:{SECRET}@folder",
        f"az:/container?anything={SECRET}",
        f"file:key@{SECRET}/..@x",
    ],
)
def test_a_malformed_url_is_not_repeated_with_its_credentials(url: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load(None, environ={}, overrides=[f"checkpoint.url={url}"])
    assert "checkpoint.url" in str(caught.value)
    assert SECRET not in str(caught.value)
    with pytest.raises(SettingsError) as caught:
        open_store(url)
    assert SECRET not in str(caught.value)


def test_a_flag_without_its_key_is_not_repeated_with_credentials() -> None:
    with pytest.raises(SettingsError, match=r"--set section\.key=value") as caught:
        load(None, environ={}, overrides=[f"s3:/key:{SECRET}@bucket"])
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "name",
    ["sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.jaas.config",
     "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "azure_storage_sas_token",
     "google_service_account_key", "api-key",
     "sse_customer_key_base64", "aws_sse_customer_key_base64", "encryption_key", "sas_key", "azure_storage_master_key",
     "token", "azure_storage_token", "bearer_token", "fabric_session_token", "AWS_SESSION_TOKEN",
     "SFD_KAFKA__SASL_OAUTHBEARER_CONFIG", "SFD_KAFKA__SSL_KEY_PEM", "SFD_CHECKPOINT__OPTIONS__SSE_CUSTOMER_KEY_BASE64",
     "Authorization", "sasl.oauthbearer.assertion.private.key.passphrase", "client_secret", "PGPASSWORD"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert is_secret(name)
    assert mask(name, 12345) == MASK


@pytest.mark.parametrize(
    "name",
    ["ssl.key.location", "sasl.oauthbearer.token.endpoint.url", "sasl.username", "group.id", "key",
     "input.keep_names", "tokens", "sketch.seed", "ssl.certificate.pem", "aws_web_identity_token_file",
     "monkey", "partition.assignment.strategy", "google_application_credentials", "application_credentials",
     "sasl.oauthbearer.client.credentials.client.id", "sse_kms_key_id", "sse_bucket_key_enabled", "saslTokenProvider",
     "container_authorization_token_file", "container_credentials_full_uri", "fabric_token_service_url",
     "GOOGLE_APPLICATION_CREDENTIALS", "AWS_WEB_IDENTITY_TOKEN_FILE"],
)  # fmt: skip
def test_names_that_only_look_like_it(name: str) -> None:
    assert not is_secret(name)
    assert mask(name, "plain") == "plain"


@pytest.mark.parametrize(
    "text",
    [
        f"https://user:{SECRET}@host:1/x?y=1",
        f"https://{SECRET}@host/x",
        f'org.apache.ScramLoginModule required username="u" password="{SECRET}";',
        f"password = '{SECRET}'",
        f"{{'sasl.password': '{SECRET}', 'x': 1}}",
        f"https://account.blob/x?sv=1&sig={SECRET}&se=2",
        f"X-Amz-Signature={SECRET}&X-Amz-Security-Token={SECRET}",
        f"Authorization: Bearer {SECRET}",
        f"-----BEGIN RSA PRIVATE KEY-----\n{SECRET}",
        f"aws_secret_access_key={SECRET} region=eu",
    ],
)
def test_texts_betray_their_secrets_by_their_form(text: str) -> None:
    assert SECRET not in mask_text(text)


def test_plain_texts_pass_unchanged() -> None:
    for text in (
        "s3://bucket/prefix",
        "rows/3 at 12:30, 5 tokens",
        "no secret here: none",
    ):
        assert mask_text(text) == text


def test_known_secrets_are_hidden_anywhere_but_short_ones_do_not_blot_out_words() -> None:
    known = secret_values("", {"sasl.password": SECRET, "ssl.key.password": "abc"})
    assert known == {SECRET}
    assert mask_text(f"login {SECRET} failed", known) == f"login {MASK} failed"


@pytest.mark.parametrize(
    ("known", "text", "shown"),
    [
        ({"abcdefgh", "ghij"}, "x abcdefghij y", f"x {MASK} y"),
        ({"abcd", "abcdefgh"}, "x abcdefgh y", f"x {MASK} y"),
        ({"abab"}, "x ababab y", f"x {MASK} y"),
        ({"abcd", "efgh"}, "x abcdefgh y", f"x {MASK} y"),
        ({"abcd", "efgh"}, "x abcd efgh y", f"x {MASK} {MASK} y"),
    ],
)
def test_overlapping_secrets_leave_no_tail(known: set[str], text: str, shown: str) -> None:
    assert mask_text(text, frozenset(known)) == shown


HARD = "p\"a\\s's\nw@ö/rd &+"


@pytest.mark.parametrize(
    "escaped",
    [
        json.dumps(HARD),
        json.dumps(HARD, ensure_ascii=False),
        json.dumps(json.dumps({"said": HARD})),
        repr(HARD),
        repr(HARD.encode()),
        quote(HARD),
        quote(HARD, safe=""),
        quote_plus(HARD),
        json.dumps(f"https://host/?q={quote(HARD)}"),
    ],
)
def test_known_secrets_are_hidden_in_their_escaped_forms(escaped: str) -> None:
    shown = mask_text(f"login {escaped} failed", secret_values("sasl.password", HARD))
    assert MASK in shown
    for part in ("rd &", "rd%20", "rd+", "w@", "w%40"):
        assert part not in shown


def test_a_password_written_escaped_in_a_url_is_known_as_it_is_used() -> None:
    known = secret_values("proxy_url", "http://user:hun%2Fter%40two@proxy")
    assert mask_text("407 for hun/ter@two", known) == f"407 for {MASK}"

"""A secret reaches no repr, dump, error, schema or table, by whatever door it came in."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest
from pydantic import ValidationError

from sfd_stream.config import Settings, load
from sfd_stream.config.secrets import MASK, is_secret, mask, mask_text, secret_values
from sfd_stream.config.show import effective_rows
from sfd_stream.errors import SettingsError

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
    "name",
    ["sasl.password", "ssl.key.password", "ssl.keystore.password", "ssl.key.pem", "sasl.jaas.config",
     "aws_access_key_id", "aws_secret_access_key", "aws_session_token", "azure_storage_sas_token",
     "google_service_account_key", "api-key",
     "Authorization", "sasl.oauthbearer.assertion.private.key.passphrase", "client_secret", "PGPASSWORD"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert is_secret(name)
    assert mask(name, 12345) == MASK


@pytest.mark.parametrize(
    "name",
    ["ssl.key.location", "sasl.oauthbearer.token.endpoint.url", "sasl.username", "group.id", "key",
     "input.keep_names", "tokens", "sketch.seed", "ssl.certificate.pem", "aws_web_identity_token_file",
     "monkey", "partition.assignment.strategy"],
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

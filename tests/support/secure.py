"""A real broker that asks who one is: SASL_SSL with SCRAM, TLS with certificates, OAUTHBEARER; and rights by ACLs.

The plaintext listener stays for tests themselves: a client of it may do anything.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tests.support.kafka import LocalBroker, free_ports
from tests.support.kafka_home import KafkaHome, broker_properties, write_properties

USER, PASSWORD = "sketch", "correct-horse"
_SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub=b;"


class SecureBroker(LocalBroker):
    """`clients` has the properties of each way in, by name: scram, tls, oauth; misled leads nowhere."""

    kind = "secure"
    clients: dict[str, dict[str, str]]

    @classmethod
    def open(cls, home: KafkaHome) -> SecureBroker:
        folder = Path(tempfile.mkdtemp(prefix="sfd-secure-"))
        port, controller, scram, tls, oauth, misled = free_ports(6)
        keys = _certificates(folder)
        settings = broker_properties(port=port, controller_port=controller, logs=folder / "logs")
        ways = f"SASL_SSL://127.0.0.1:{scram},SSL://127.0.0.1:{tls},SASL_PLAINTEXT://127.0.0.1:{oauth}"
        settings |= {
            "listeners": f"{settings['listeners']},{ways},MISLED://127.0.0.1:{misled}",
            "advertised.listeners": f"{settings['advertised.listeners']},{ways},MISLED://nobody.invalid:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL_SSL:SASL_SSL,SSL:SSL,"
            "SASL_PLAINTEXT:SASL_PLAINTEXT,MISLED:PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-256,OAUTHBEARER",
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": _SCRAM,
            "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.sasl_plaintext.oauthbearer.sasl.jaas.config": _OAUTH,
            "listener.name.sasl_plaintext.sasl.enabled.mechanisms": "OAUTHBEARER",
            "listener.name.ssl.ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(keys["broker"]),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(keys["ca"]),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
        }
        write_properties(folder / "server.properties", settings)
        home.copy_formatted(folder / "logs")
        broker = cls(home, folder, port, ())  # with the first compiler alone TLS is ten times slower
        broker.restart()
        broker._add_user()
        broker.clients = {
            "scram": {
                "bootstrap.servers": f"127.0.0.1:{scram}",
                "security.protocol": "SASL_SSL",
                "ssl.ca.location": str(keys["ca"]),
                "sasl.mechanism": "SCRAM-SHA-256",
                "sasl.username": USER,
                "sasl.password": PASSWORD,
            },
            "tls": {
                "bootstrap.servers": f"127.0.0.1:{tls}",
                "security.protocol": "SSL",
                "ssl.ca.location": str(keys["ca"]),
                "ssl.certificate.location": str(keys["client certificate"]),
                "ssl.key.location": str(keys["client key"]),
            },
            "oauth": {
                "bootstrap.servers": f"127.0.0.1:{oauth}",
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "OAUTHBEARER",
                "sasl.oauthbearer.config": f"sub={USER}",
            },
            "misled": {"bootstrap.servers": f"127.0.0.1:{misled}"},
        }
        return broker

    def _add_user(self) -> None:
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        wanted = UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        self.admin.alter_user_scram_credentials([wanted])[USER].result(30)

    def allow(
        self,
        kind: ResourceType,
        name: str,
        *operations: AclOperation,
        principal: str = f"User:{USER}",
        prefixed: bool = False,
    ) -> None:
        """Grant exactly this; there is no other right than what was granted."""
        pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
        wanted = [
            AclBinding(kind, name, pattern, principal, "*", operation, AclPermissionType.ALLOW)
            for operation in operations
        ]
        for made in self.admin.create_acls(wanted).values():
            made.result(30)


def _certificates(folder: Path) -> dict[str, Path]:
    """A new authority, a broker's certificate for the loopback, and a client's."""

    def openssl(*arguments: Any) -> None:
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=folder)

    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2")
    openssl("req", "-x509", *key, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=tests")
    for name, subject in (("broker", "/CN=localhost"), ("client", f"/CN={USER}")):
        openssl("req", *key[:-2], "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", subject)
        (folder / f"{name}.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2", "-extfile", f"{name}.ext")
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.crt", *signed)
    parts = [(folder / file).read_text() for file in ("broker.key", "broker.crt", "ca.pem")]
    (folder / "broker.pem").write_text("".join(parts))
    return {
        "ca": folder / "ca.pem",
        "broker": folder / "broker.pem",
        "client certificate": folder / "client.crt",
        "client key": folder / "client.key",
    }

"""Passwords and certificates in the form of the Java clients, translated for librdkafka."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.client.errors import UnknownSetting

SECRETS = frozenset(
    {
        "sasl.jaas.config",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
        "ssl.endpoint.identification.algorithm",
    }
)
_OPTION = re.compile(r"""(username|password)\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s;]+))""")


def translate(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of librdkafka, from those of the Java clients that it does not have."""
    config: dict[str, Any] = {}
    if "sasl.jaas.config" in settings:
        config.update(_user(str(settings["sasl.jaas.config"])))
    if "ssl.endpoint.identification.algorithm" in settings:
        # An empty value in Java is `none` in librdkafka.
        checked = settings["ssl.endpoint.identification.algorithm"] or "none"
        config["ssl.endpoint.identification.algorithm"] = checked
    config.update(_trusted(settings))
    config.update(_certificate(settings))
    return config


def _user(jaas: str) -> dict[str, Any]:
    found = {match[1]: match[2] or match[3] or match[4] or "" for match in _OPTION.finditer(jaas)}
    if "LoginModule" not in jaas or found.keys() != {"username", "password"}:
        raise UnknownSetting(
            'sasl.jaas.config has no username="..." and password="..."; '
            "or use sasl.username and sasl.password"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _trusted(settings: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if "ssl.truststore.certificates" in settings:
        config["ssl.ca.pem"] = settings["ssl.truststore.certificates"]
    if "ssl.truststore.location" in settings:
        if str(settings.get("ssl.truststore.type", "JKS")).upper() != "PEM":
            raise UnknownSetting(
                "ssl.truststore.location must be a PEM file (ssl.truststore.type=PEM); "
                "keytool -exportcert -rfc writes one from a Java key store"
            )
        config["ssl.ca.location"] = settings["ssl.truststore.location"]
    return config


def _certificate(settings: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if "ssl.keystore.certificate.chain" in settings:
        config["ssl.certificate.pem"] = settings["ssl.keystore.certificate.chain"]
    if "ssl.keystore.key" in settings:
        config["ssl.key.pem"] = settings["ssl.keystore.key"]
    if "ssl.keystore.location" in settings:
        location = settings["ssl.keystore.location"]
        kind = str(settings.get("ssl.keystore.type", "PKCS12")).upper()
        if kind == "PEM":
            config["ssl.certificate.location"] = config["ssl.key.location"] = location
        elif kind == "PKCS12":
            config["ssl.keystore.location"] = location
        else:
            raise UnknownSetting(
                f"ssl.keystore.type={kind} is not supported, use PEM or PKCS12; "
                "keytool -importkeystore -deststoretype PKCS12 converts a key store"
            )
    return config

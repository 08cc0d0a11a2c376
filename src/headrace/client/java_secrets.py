"""Passwords and certificates as Java's clients are given them, for a client that is not Java."""

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
    """Settings of the library below, from those of the Java clients that it does not know."""
    config: dict[str, Any] = {}
    if "sasl.jaas.config" in settings:
        config.update(_user(str(settings["sasl.jaas.config"])))
    if "ssl.endpoint.identification.algorithm" in settings:
        # Java says it with nothing, the library with a word.
        checked = settings["ssl.endpoint.identification.algorithm"] or "none"
        config["ssl.endpoint.identification.algorithm"] = checked
    config.update(_trusted(settings))
    config.update(_certificate(settings))
    return config


def _user(jaas: str) -> dict[str, Any]:
    found = {match[1]: match[2] or match[3] or match[4] or "" for match in _OPTION.finditer(jaas)}
    if "LoginModule" not in jaas or found.keys() != {"username", "password"}:
        raise UnknownSetting(
            "sasl.jaas.config has no user and password that can be read; "
            "sasl.username and sasl.password say the same"
        )
    return {"sasl.username": found["username"], "sasl.password": found["password"]}


def _trusted(settings: Mapping[str, Any]) -> dict[str, Any]:
    config: dict[str, Any] = {}
    if "ssl.truststore.certificates" in settings:
        config["ssl.ca.pem"] = settings["ssl.truststore.certificates"]
    if "ssl.truststore.location" in settings:
        if str(settings.get("ssl.truststore.type", "JKS")).upper() != "PEM":
            raise UnknownSetting(
                "ssl.truststore.location is read as PEM only (ssl.truststore.type=PEM); "
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
                f"a key store of type {kind} cannot be read here, only PEM and PKCS12; "
                "keytool -importkeystore -deststoretype PKCS12 makes one"
            )
    return config

"""SASL mechanisms of a client: each yields what to send, and is sent what was received."""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable, Generator
from functools import partial

from headrace.protocol.errors import ErrorCode, KafkaError

Exchange = Generator[bytes, bytes, None]

ITERATIONS_MIN = 4096
# A malicious broker could keep the client busy for hours with more.
ITERATIONS_MAX = 10_000_000


def plain(user: str, password: str) -> Exchange:
    """RFC 4616: user and password in one message, to be used inside TLS."""
    yield f"\0{user}\0{password}".encode()


def scram(digest: str, user: str, password: str, nonce: str | None = None) -> Exchange:
    """RFC 5802: both sides prove that they know the password without sending it."""
    nonce = nonce or secrets.token_urlsafe(24)
    name = user.replace("=", "=3D").replace(",", "=2C")
    first_bare = f"n={name},r={nonce}"
    heard = (yield f"n,,{first_bare}".encode()).decode()
    fields = _fields(heard)
    salt, iterations = base64.b64decode(fields.get("s", "")), int(fields.get("i", "0"))
    if not fields.get("r", "").startswith(nonce):
        raise _distrust("its nonce does not start with ours")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise _distrust(f"{iterations} iterations are not {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", digest)
    final_bare = f"c=biws,r={fields['r']}"
    signed = f"{first_bare},{heard},{final_bare}".encode()
    signature = hmac.digest(hashlib.new(digest, client_key).digest(), signed, digest)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    heard = (yield f"{final_bare},p={base64.b64encode(proof).decode()}".encode()).decode()
    expected = hmac.digest(hmac.digest(salted, b"Server Key", digest), signed, digest)
    if not hmac.compare_digest(base64.b64decode(_fields(heard).get("v", "")), expected):
        raise _distrust("it does not know the password")


def _fields(message: str) -> dict[str, str]:
    return {part[:1]: part[2:] for part in message.split(",")}


def _distrust(reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.SASL_AUTHENTICATION_FAILED, f"the broker cannot be trusted: {reason}"
    )


MECHANISMS: dict[str, Callable[[str, str], Exchange]] = {
    "PLAIN": plain,
    "SCRAM-SHA-256": partial(scram, "sha256"),
    "SCRAM-SHA-512": partial(scram, "sha512"),
}

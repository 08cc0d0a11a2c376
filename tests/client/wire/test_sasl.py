"""SASL mechanisms against the examples of their RFCs, and against brokers that lie."""

from __future__ import annotations

import pytest

from headrace.client.wire.sasl import plain, scram
from headrace.protocol.errors import KafkaError

# RFC 7677, section 3; the same exchange with SHA-1 is in RFC 5802, section 5.
NONCE = "rOprNGfwEbeRWgbNEkqO"
SERVER_FIRST = (
    b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="


def test_plain_says_user_and_password() -> None:
    assert list(plain("alice", "secret")) == [b"\0alice\0secret"]


def test_scram_is_that_of_the_rfc() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    assert next(exchange) == f"n,,n=user,r={NONCE}".encode()
    assert exchange.send(SERVER_FIRST) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    with pytest.raises(StopIteration):
        exchange.send(SERVER_FINAL)


def test_a_comma_in_a_name_is_escaped() -> None:
    assert next(scram("sha512", "a,b=c", "x", "n")) == b"n,,n=a=2Cb=3Dc,r=n"


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        (SERVER_FIRST.replace(b"r=rO", b"r=xx"), "nonce"),
        (SERVER_FIRST.replace(b"4096", b"1"), "1 iterations"),
        (SERVER_FIRST.replace(b"4096", b"99999999"), "99999999 iterations"),
    ],
)
def test_a_broker_that_cheats_is_found_out(first: bytes, reason: str) -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    with pytest.raises(KafkaError, match=reason):
        exchange.send(first)


def test_a_broker_that_does_not_know_the_password_is_found_out() -> None:
    exchange = scram("sha256", "user", "pencil", NONCE)
    next(exchange)
    exchange.send(SERVER_FIRST)
    with pytest.raises(KafkaError, match="does not know the password"):
        exchange.send(SERVER_FINAL.replace(b"6rri", b"7rri"))

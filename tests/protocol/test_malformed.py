"""Bytes that lie give a ProtocolError or a message, never anything else."""

from __future__ import annotations

import random
import resource
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.protocol.messages import MESSAGES, sample, versions

from headrace.protocol.api import REQUESTS
from headrace.protocol.codec import decode, decoder, encode
from headrace.protocol.headers import decode_request_header
from headrace.protocol.primitives import ProtocolError
from headrace.protocol.schema import Message

GROWTH_BYTES_MAX = 64 * 1024 * 1024
# Zero, the largest and the most negative numbers, of every width that a length can have.
HOSTILE = [
    b"\x00",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\x7f\xff",
    b"\x80\x00",
    b"\xff\xfe",
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
]


def resident_peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_a_frame_cut_at_any_byte_is_refused(cls: type[Message]) -> None:
    for version in versions(cls):
        frame = encode(sample(cls), version)
        read = decoder(cls, version)
        for end in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode(cls, version, frame[:end])
            # What follows in a connection's buffer must not be taken for the rest of the frame.
            with pytest.raises(ProtocolError):
                read(frame, 0, end)


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_bytes_after_a_message_are_refused(cls: type[Message]) -> None:
    for version in versions(cls):
        with pytest.raises(ProtocolError, match="1 bytes follow"):
            decode(cls, version, encode(sample(cls), version) + b"\x00")


@pytest.mark.parametrize("cls", MESSAGES, ids=lambda cls: cls.__name__)
def test_hostile_numbers_at_any_place_do_no_harm(cls: type[Message]) -> None:
    before = resident_peak_bytes()
    for version in versions(cls):
        frame = encode(sample(cls), version)
        # Versions differ little, so that each gets a share of the places in turn.
        for start in range(version % 3, len(frame), 3):
            for number in HOSTILE:
                mutant = frame[:start] + number + frame[start + len(number) :]
                with suppress(ProtocolError):
                    decode(cls, version, mutant)
    assert resident_peak_bytes() - before < GROWTH_BYTES_MAX


@settings(max_examples=40, deadline=None, database=None)
@given(st.sampled_from(MESSAGES), st.randoms(use_true_random=False), st.integers(1, 8))
def test_scrambled_frames_do_no_harm(
    cls: type[Message], chance: random.Random, changes: int
) -> None:
    for version in versions(cls):
        mutant = bytearray(encode(sample(cls), version))
        for _ in range(changes if mutant else 0):
            at = chance.randrange(len(mutant))
            match chance.randrange(3):
                case 0:
                    mutant[at] ^= 1 << chance.randrange(8)
                case 1:
                    mutant.insert(at, chance.randrange(256))
                case _ if len(mutant) > 1:
                    del mutant[at]
        with suppress(ProtocolError):
            decode(cls, version, mutant)


@settings(max_examples=300, deadline=None, database=None)
@given(st.binary(max_size=60))
def test_noise_as_a_request_does_no_harm(noise: bytes) -> None:
    with suppress(ProtocolError):
        key, version, _, _, pos = decode_request_header(noise, 0, len(noise))
        request = REQUESTS.get(key)
        if request is not None and version in versions(request):
            decode(request, version, noise, pos)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_a_million_mutated_requests_do_no_harm() -> None:
    before = resident_peak_bytes()
    chance = random.Random(20260101)
    frames = [
        (cls, version, encode(sample(cls), version))
        for cls in MESSAGES
        for version in versions(cls)
    ]
    for _ in range(1_000_000):
        cls, version, frame = chance.choice(frames)
        mutant = bytearray(frame)
        for _ in range(chance.randint(1, 5) if mutant else 0):
            mutant[chance.randrange(len(mutant))] = chance.randrange(256)
        with suppress(ProtocolError):
            decode(cls, version, mutant)
    assert resident_peak_bytes() - before < GROWTH_BYTES_MAX

"""Fetch sessions (KIP-227): the broker remembers what a client fetches, so that a fetch names only
what changed and a response has only what is new.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator

from headrace.protocol.api.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from headrace.protocol.errors import ErrorCode

FINAL_EPOCH = -1
INITIAL_EPOCH = 0
EPOCH_MAX = 2**31 - 1
# A session unused for this long may be evicted for a new one.
UNUSED_MS_MIN = 120_000

# A partition within a fetch: (topic name, topic id, index). Versions below 13 leave the id zero,
# later ones leave the name empty.
Key = tuple[str, bytes, int]


class Wanted:
    """One partition that a client fetches, and what the last response said of it."""

    __slots__ = (
        "key",
        "last_high_watermark",
        "last_start_offset",
        "leader_epoch",
        "max_bytes",
        "offset",
    )

    def __init__(self, key: Key, partition: FetchPartition) -> None:
        self.key = key
        self.last_high_watermark = -1
        self.last_start_offset = -1
        self.offset = partition.fetch_offset
        self.max_bytes = partition.partition_max_bytes
        self.leader_epoch = partition.current_leader_epoch

    def take_over(self, other: Wanted) -> None:
        """Continue from where a new request for the same partition says."""
        self.offset = other.offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch

    def worth_telling(self, data: PartitionData) -> bool:
        """Whether an incremental response must include this result; remembers that it did."""
        changed = (
            len(data.records or b"") > 0
            or data.error_code != ErrorCode.NONE
            or data.high_watermark != self.last_high_watermark
            or data.log_start_offset != self.last_start_offset
        )
        # After an error the next response repeats the offsets, because the client forgot them.
        failed = data.error_code != ErrorCode.NONE
        self.last_high_watermark = -1 if failed else data.high_watermark
        self.last_start_offset = -1 if failed else data.log_start_offset
        return changed


class FetchSession:
    """What one client fetches, with the epoch of its next request."""

    __slots__ = ("epoch", "id", "last_used_ms", "wanted")

    def __init__(self, session_id: int, wanted: Iterable[Wanted], now_ms: int) -> None:
        self.id = session_id
        self.last_used_ms = now_ms
        self.epoch = 1
        self.wanted: OrderedDict[Key, Wanted] = OrderedDict((w.key, w) for w in wanted)


class FetchScope:
    """What one request fetches, and how its response is put together."""

    __slots__ = ("_incremental", "_session", "wanted")

    def __init__(
        self, wanted: list[Wanted], session: FetchSession | None, incremental: bool
    ) -> None:
        self.wanted = wanted
        self._session = session
        self._incremental = incremental

    def respond(self, results: list[PartitionData]) -> FetchResponse:
        """The response, from one result for each wanted partition, in order."""
        topics: list[FetchableTopicResponse] = []
        last: tuple[str, bytes] | None = None
        session = self._session
        for wanted, data in zip(self.wanted, results, strict=True):
            if session is not None:
                tell = wanted.worth_telling(data)
                if self._incremental and not tell:
                    continue
                # A partition that sent data goes to the end, so that a fetch that is cut short
                # by its size limit does not starve the partitions after it.
                if len(data.records or b"") > 0 and wanted.key in session.wanted:
                    session.wanted.move_to_end(wanted.key)
            name, topic_id, _ = wanted.key
            if last != (name, topic_id):
                topics.append(FetchableTopicResponse(topic=name, topic_id=topic_id, partitions=[]))
                last = (name, topic_id)
            topics[-1].partitions.append(data)
        return FetchResponse(session_id=session.id if session else 0, responses=topics)


class FetchSessions:
    """The sessions of one node.

    When all slots are taken, a new session replaces the one that was unused for longest, if that
    is long enough; else the client fetches without a session, which costs it some bytes. Evicting
    sessions in use would make all of them fail in turn.
    """

    def __init__(self, slots: int, monotonic_ms: Callable[[], int]) -> None:
        self._slots = slots
        self._monotonic_ms = monotonic_ms
        self._sessions: OrderedDict[int, FetchSession] = OrderedDict()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, api_version: int) -> FetchScope | ErrorCode:
        """Return what this request fetches, or why its session cannot be used."""
        if api_version < 7 or (request.session_id == 0 and request.session_epoch == FINAL_EPOCH):
            return FetchScope(list(_wanted(request)), None, False)
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            wanted = list(_wanted(request))
            if request.session_epoch == FINAL_EPOCH or not self._make_room():
                return FetchScope(wanted, None, False)
            return FetchScope(wanted, self._create(wanted), False)
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if request.session_epoch != session.epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        session.epoch = 1 if session.epoch == EPOCH_MAX else session.epoch + 1
        session.last_used_ms = self._monotonic_ms()
        self._sessions.move_to_end(session.id)
        if request.topics:
            for named in _wanted(request):
                session.wanted.setdefault(named.key, named).take_over(named)
        for topic in request.forgotten_topics_data:
            for index in topic.partitions:
                session.wanted.pop((topic.topic, topic.topic_id, index), None)
        return FetchScope(list(session.wanted.values()), session, True)

    def _create(self, wanted: list[Wanted]) -> FetchSession:
        session_id = 0
        while session_id == 0 or session_id in self._sessions:
            session_id = random.randint(1, 2**31 - 1)
        session = FetchSession(session_id, wanted, self._monotonic_ms())
        self._sessions[session_id] = session
        return session

    def _make_room(self) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None or self._monotonic_ms() - oldest.last_used_ms < UNUSED_MS_MIN:
            return False
        del self._sessions[oldest.id]
        return True


def _wanted(request: FetchRequest) -> Iterator[Wanted]:
    for topic in request.topics:
        for partition in topic.partitions:
            yield Wanted((topic.topic, topic.topic_id, partition.partition), partition)

"""What the clients play on: topics made and seeded for each case on the broker under test."""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.interop.cases import SEEDED_STEP_MS, Case, Task, Topic, records_to_send, settled

_ANSWER_SECONDS_MAX = 60.0


class Stage:
    """Makes tasks out of cases, with topics of their own, so that no test sees another's."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.seeded_at_ms = (int(time.time()) - 3600) * 1000
        self._run = uuid.uuid4().hex[:8]
        # These live until the broker is gone, which is no news to anybody.
        quiet = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._admin = AdminClient(quiet)
        # A topic that is not ready makes the client send again, which must not change the order.
        self._producer = Producer({**quiet, "linger.ms": 0, "enable.idempotence": True})

    def prepare(
        self, client: str, cases: Collection[Case], lacks: Collection[str] = ()
    ) -> dict[str, Task]:
        """Make and seed the topics of these cases and give the tasks by case name.

        `lacks` are the shapes of records that the client cannot send.
        """
        records = records_to_send(self.seeded_at_ms, lacks)
        tasks = {
            case.name: Task(
                name=case.name,
                bootstrap=self.bootstrap,
                topic=f"{client}-{case.name}-{self._run}",
                seeded_at_ms=self.seeded_at_ms,
                records=records,
            )
            for case in cases
        }
        specs: dict[str, Topic] = {}
        for case in cases:
            if case.topic is not None:
                specs[tasks[case.name].topic] = case.topic
                if case.topic.out:
                    specs[tasks[case.name].out] = Topic()
        if specs:
            self._make_topics(specs)
        return tasks

    def _make_topics(self, specs: Mapping[str, Topic]) -> None:
        topics = [
            NewTopic(name, spec.partitions, 1, config=dict(spec.settings))
            for name, spec in specs.items()
        ]
        for made in self._admin.create_topics(topics).values():
            made.result(_ANSWER_SECONDS_MAX)
        assert settled(lambda: specs.keys() <= self._admin.list_topics().topics.keys(), True)
        for name, spec in specs.items():
            for partition in range(spec.partitions):
                for number in range(spec.seeded):
                    self._producer.produce(
                        name,
                        f"{partition}-{number}".encode(),
                        partition=partition,
                        timestamp=self.seeded_at_ms + number * SEEDED_STEP_MS,
                    )
        assert self._producer.flush(_ANSWER_SECONDS_MAX) == 0, "topics could not be seeded"

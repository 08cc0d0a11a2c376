"""A topic that an operator has turned off: an app refuses to send, and its outbox keeps."""

from __future__ import annotations

import pytest
from tests.handlers.running import read_all
from tests.stores import Pair

from headrace.client.errors import TopicSwitchedOff
from headrace.client.switches import SwitchState, turn
from headrace.handlers import App


def test_an_app_refuses_a_topic_that_is_off_and_its_outbox_keeps_the_message(pair: Pair) -> None:
    topic, other = pair.topic("receipts"), pair.topic("letters")
    turn(pair.bootstrap, topic, SwitchState(is_on=False))
    with App(pair.bootstrap, store=pair.store_url) as app:
        store = app.context.store
        assert store is not None
        with pytest.raises(TopicSwitchedOff):
            app.send(topic, b"at once")
        with store.begin() as tx:
            kept = tx.send(topic, b"kept")
            tx.send(other, b"behind it")
        read_all(pair.bootstrap, other, 1)
        row = store.outbox.find(kept)
        assert row is not None
        assert row.state == "pending"
        turn(pair.bootstrap, topic, SwitchState())
        assert [record.value() for record in read_all(pair.bootstrap, topic, 1)] == [b"kept"]
        app.send(topic, b"at once").result(30)

"""Large messages in the test kit: through the delay service, and never at the real place."""

from __future__ import annotations

from pathlib import Path

from tests.large.sending import SIZE, noise, small_large

from headrace import App
from headrace.large.body_store import new_name
from headrace.testing import run

OLD = new_name("real", "films", 1_600_000_000_000, "0" * 32)


def test_a_delayed_claim_check_is_delivered_whole(tmp_path: Path) -> None:
    """And what lies where the app really has its bodies is neither added to nor collected."""
    large = small_large(way="claim", claims=str(tmp_path))
    large.body_store.write(OLD, iter([b"somebody needs it"]))
    app = App("nowhere:9092", large=large)
    film = noise(3 * SIZE)
    found: list[bytes] = []

    @app.handler("films", group="g")
    def take(film: bytes) -> None:
        found.append(film)

    with run(app) as world:
        app.send("films", film, after="15m", headers={"headrace-id": "night-train"}).result(30)
        assert app.large is not None
        (body,) = app.large.body_store.list()
        assert body.topic == "films"
        world.advance("14m")
        assert found == []
        world.advance("2m")
        assert found == [film]
        world.advance("30d")
        (record,) = world.records("films")
        assert record.value == body.name.encode()
    assert app.large is large
    assert [stored.name for stored in large.body_store.list()] == [OLD]

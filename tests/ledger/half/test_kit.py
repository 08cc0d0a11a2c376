"""Half messages in an application's own tests: the kit runs the service, on virtual time."""

from __future__ import annotations

from headrace import App
from headrace.testing import run


def test_time_is_turned_to_the_checks() -> None:
    app = App("127.0.0.1:1")
    seen: list[str] = []
    asked: list[str] = []
    answers: dict[str, bool | None] = {"milk": True, "salt": None}

    @app.handler("orders", group="kitchen", start="earliest")
    def cook(item: str) -> None:
        seen.append(item)

    @app.half_checker("shop")
    def is_stored(item: str) -> bool | None:
        asked.append(item)
        return answers[item]

    with run(app) as world:
        with app.half("orders", "tea"):
            pass
        world.settle()
        assert seen == ["tea"]
        for item in answers:
            # Its sender dies here.
            app.half("orders", item).__enter__()
        world.advance("5s")
        assert asked == []
        world.advance("1s")
        assert sorted(asked) == ["milk", "salt"]
        assert seen == ["tea", "milk"]
        world.advance("30s")
        assert asked.count("salt") == 2
        assert seen == ["tea", "milk"]

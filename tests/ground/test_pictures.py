"""The pictures of states are those of the tables that the code obeys."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from xml.etree import ElementTree

import pytest
from docs.states.draw import FOLDER, PICTURES, Row, draw, picture, read_table

DOCS = Path(__file__).parents[2] / "docs"


class Light(Enum):
    RED = "those who drive stop and wait"
    GREEN = "they go"


TABLE = {(Light.RED, "time"): Light.GREEN, (Light.GREEN, "<time>"): Light.GREEN}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_current(name: str) -> None:
    drawn = (FOLDER / f"{name}.svg").read_text()
    assert drawn == picture(name), "draw it again: python docs/states/draw.py"


@pytest.mark.parametrize("name", PICTURES)
def test_a_page_shows_its_picture(name: str) -> None:
    assert f"](states/{name}.svg)" in (DOCS / PICTURES[name].page).read_text()


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_has_every_state_and_a_row_for_every_transition(name: str) -> None:
    rows, meanings = read_table(PICTURES[name].table)
    texts = [found.text for found in ElementTree.fromstring(picture(name)).iter() if found.text]
    states = {state for row in rows for state in (row.state, row.next)}
    assert states <= set(texts)
    assert sum(texts.count(event) for event in {row.event for row in rows}) >= len(rows)
    assert {f"{state}: {text}" for state, text in meanings.items()} <= set(texts)


def test_states_whose_values_are_sentences_go_by_their_names() -> None:
    rows, meanings = read_table(f"{__name__}:TABLE")
    assert rows == [Row("red", "time", "green"), Row("green", "<time>", "green")]
    assert meanings == {"red": "those who drive stop and wait", "green": "they go"}
    image = draw("Lights & times", rows, meanings)
    texts = [found.text for found in ElementTree.fromstring(image).iter()]
    assert "<time>" in texts
    assert "Lights & times" in texts

"""Files with the offsets of a group."""

from __future__ import annotations

from pathlib import Path

import pytest

from headrace.client.admin.errors import AdminError
from headrace.client.admin.offset_files import read_offsets, write_offsets

OFFSETS = {("orders", 0): 4, ("or,ders", 1): 6}


@pytest.mark.parametrize("name", ["plan.csv", "plan", "plan.json"])
def test_what_is_written_is_read_back(tmp_path: Path, name: str) -> None:
    write_offsets(tmp_path / name, OFFSETS)
    assert read_offsets(tmp_path / name, "shop") == OFFSETS


@pytest.mark.parametrize(
    "text",
    [
        "orders,0,4\n\norders,1,6\n",
        '"shop","orders",0,4\n"shop","orders",1,6\nother,orders,0,9\n',
        '[{"topic": "orders", "partition": 0, "offset": 4},'
        ' {"group": "shop", "topic": "orders", "partition": 1, "offset": 6},'
        ' {"group": "other", "topic": "orders", "partition": 2, "offset": 9}]',
    ],
)
def test_kafkas_forms_are_read_for_one_group(tmp_path: Path, text: str) -> None:
    file = tmp_path / "plan"
    file.write_text(text)
    assert read_offsets(file, "shop") == {("orders", 0): 4, ("orders", 1): 6}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("orders,0\n", "line 1 has 2 fields"),
        ("orders,0,x\n", "line 1 has no whole numbers"),
        ("orders,-1,0\n", "negative"),
        ("orders,0,1\norders,0,2\n", "line 2 names orders:0 twice, with different offsets"),
        ("other,orders,0,1\n", "no offset for group 'shop'"),
        ('[{"topic": "orders", "partition": 0}]', "entry 1 has no offset"),
        ("[1]", "entry 1 is not an object"),
        ("[", "is not a file of offsets"),
        ("", "no offset for group"),
    ],
)
def test_a_wrong_file_is_refused_with_the_line(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "plan"
    file.write_text(text)
    with pytest.raises(AdminError) as caught:
        read_offsets(file, "shop")
    assert message in caught.value.message
    assert "topic,partition,offset" in caught.value.hint

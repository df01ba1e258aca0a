"""Scores as messages: the vector in docs/reference/formats.md is what the code writes."""

from __future__ import annotations

import json
import re
from typing import Any

import msgpack
import numpy as np

from sfd_stream.sketch.intervals import Intervals
from sfd_stream.sketch.scoring.causes import Cause, Explanation
from sfd_stream.sketch.scoring.score import Scores
from sfd_stream.wire.scores import BasisNote, Origin, PlainScores, score_map
from sfd_stream.wire.scores import encode as encode_score
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs" / "reference" / "formats.md").read_text()


def array(*values: float) -> Any:
    return np.array(values)


SCORE = score_map(
    Origin("rows", 3, 1041, 0),
    PlainScores.of(
        Scores(
            coordinates=array(0.5, -1.25)[None],
            residual=array(12.0),
            residual_share=array(0.75),
            residual_over_mean=Intervals(array(8.0), array(9.5), array(11.0)),
            t2=Intervals(array(1.5), array(2.0), array(np.inf)),
            p_value=array(0.0009765625),
        ),
        array(0.5, -1.25)[None],
        array(0).astype(int),
    ),
    0,
    BasisNote("6b86b273ff34fce1", 2000, 2, True, 12.5).as_map(),
    counted=False,
    earlier_rows=3071,
    reported=["p_value"],
    causes=Explanation((Cause(17, "antifreeze", 0.5, 3.0, 0.0),), 0.25, (Cause(4, "rice", 0.125, 0.0, 2.0),)),
)


def block(kind: str) -> str:
    (found,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, flags=re.DOTALL | re.MULTILINE)
    return str(found)


def test_the_page_shows_what_is_written_as_json() -> None:
    assert json.loads(block("scorejson")) == SCORE
    assert json.loads(encode_score(SCORE, "json")) == SCORE


def test_the_page_shows_what_is_written_as_msgpack() -> None:
    data = bytes.fromhex(block("scoremsgpack"))
    assert data == encode_score(SCORE, "msgpack")
    assert msgpack.unpackb(data) == SCORE


def test_a_bound_that_does_not_exist_is_null() -> None:
    assert SCORE["t2"] == {"lower": 1.5, "estimate": 2.0, "upper": None}


def test_every_field_stands_in_the_table() -> None:
    section = PAGE.partition("## Scores")[2].partition("\n## ")[0]
    named = set(re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE))
    assert {*SCORE, *SCORE["basis"], *SCORE["causes"]["t2"][0], "missing_share"} <= named

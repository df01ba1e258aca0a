"""The picture of the demo: one whole SVG file that loads nothing."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from sfd_stream.demo import checks
from sfd_stream.demo.anomalies import FoundRow, ScoredRows
from sfd_stream.demo.picture import Picture
from sfd_stream.sketch.scoring.causes import Cause
from sfd_stream.sketch.sketch import Sketch

pytestmark = pytest.mark.xdist_group("claims")  # the library is read once


def test_the_picture_is_one_whole_svg_that_loads_nothing(truth: checks.Truth, sketch: Sketch) -> None:
    values = sketch.singular_values(20)
    true = truth.singular_values(20)
    cause = Cause(3, "<word>", 0.9, 30.0, 0.1)
    row = FoundRow("odd & new", 0.008, "residual", cause)
    scored = ScoredRows([row], 100, 2, 0, over_mean=np.array([0.5, 1.0, 90.0]), t2=np.array([6.0, 2.0, 0.1]))
    picture = Picture("a & b", "<c>", values, true, sketch.delta, [["one", "two"], ["three"] * 30], scored)
    svg = picture.svg()
    tree = ET.fromstring(svg)  # noqa: S314 - our own
    assert {"a & b", "<c>", "one two", "odd & new", "<word>: 30, expected 0.1"} <= {e.text for e in tree.iter()}
    dots = len(true) + 1 + 3
    assert len(tree.findall(".//{*}circle")) == dots, "one for each value, the legend's, and one for each new row"
    assert re.findall(r"https?://[^\"]*", svg) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"href|url\(|@import", svg)

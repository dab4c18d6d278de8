"""The pictures of the pages in the docs show what the pages say today."""

import json

from tools.docs.pictures import ADDRESSES, FIGURES, LABELS, LIVE, labels


def test_the_pictures_show_the_headings_and_controls_of_todays_pages() -> None:
    assert json.loads(LABELS.read_text()) == labels(), "run python -m tools.docs pictures"


def test_the_labels_are_those_of_the_filters_and_sections() -> None:
    found = labels()
    assert {"Benchmark", "Compare with", "Stop reason"} <= {*found["explorer.png"]}
    assert {"Results", "Scores", "Runtime"} <= {*found["report.png"]}


def test_every_picture_is_there_and_small() -> None:
    for name in (*ADDRESSES, LIVE):
        assert 10_000 < (FIGURES / name).stat().st_size < 300_000

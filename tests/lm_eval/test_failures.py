import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import check_failures


def test_a_few_failures_are_told(caplog):
    check_failures({"toy/3/0": "too\nlong"}, "generate_until", 2, 0.5)
    assert "1 of 2 generate_until requests failed; the first one, 'toy/3/0'" in caplog.text
    assert "too long; they count as wrong" in caplog.text


def test_more_than_the_share_are_an_error():
    check_failures({}, "generate_until", 0, 0.5)
    with pytest.raises(UserError, match="says: too long; fix it or raise max_error_share"):
        check_failures({"toy/3/0": "too long"}, "generate_until", 1, 0.5)

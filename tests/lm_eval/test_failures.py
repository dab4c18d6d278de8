import pytest

from adafuse.errors import UserError
from adafuse.lm_eval.requests import Failures


def test_a_few_failures_are_told_and_counted(caplog):
    failures = Failures(0.5)
    failures.add("toy/3/0", "too\nlong")
    failures.check("generate_until", 2)
    assert "1 of 2 generate_until requests failed; the first one, 'toy/3/0'" in caplog.text
    assert "too long; they count as wrong" in caplog.text
    assert failures.total == 1


def test_more_than_the_share_are_an_error():
    failures = Failures(0.5)
    failures.add("toy/3/0", "too long")
    with pytest.raises(UserError, match="says: too long; fix it or raise max_error_share"):
        failures.check("generate_until", 1)


def test_every_kind_of_requests_is_counted_from_zero():
    failures = Failures(0.5)
    for _ in range(2):
        failures.add("toy/3/0", "too long")
        failures.check("loglikelihood", 2)
    failures.check("loglikelihood", 0)
    assert failures.total == 2

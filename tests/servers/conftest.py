import pytest

from tests.support.stand_in import standing


@pytest.fixture(autouse=True)
def quick(no_pauses):
    """No test waits between two attempts."""


@pytest.fixture
def server(distributions):
    with standing(distributions[1]) as server:
        yield server

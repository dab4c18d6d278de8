import pytest

from adafuse.cli.options import with_options
from adafuse.errors import UserError


def test_values_are_read_as_in_a_configuration():
    given = ["top_k=5", "rank_only=true", "ranker=a/b", "hedge=null", "tau=0.5", "name=a=b"]
    assert with_options({"branching": 3}, given) == {
        "branching": 3,
        "top_k": 5,
        "rank_only": True,
        "ranker": "a/b",
        "hedge": None,
        "tau": 0.5,
        "name": "a=b",
    }


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["words"], "'words' is not of the form NAME=VALUE"),
        (["=3"], "'=3' is not of the form NAME=VALUE"),
        (["tau=0.5"], "option 'tau' is given twice"),
        (["words=1", "words=2"], "option 'words' is given twice"),
        (["words=[1"], "has a value that is not valid YAML"),
    ],
)
def test_another_form_is_refused_in_one_sentence(given, sentence):
    with pytest.raises(UserError, match=sentence):
        with_options({"tau": 0.7}, given)

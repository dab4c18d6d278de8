from adafuse.records.served import Served, are_same

ONE = Served("vllm", "0.32.0", "toy", 512, (((5, -0.1), (3, -2.4)), ((7, -0.5), (2, -1.0))))


def with_likely(*steps):
    return ONE._replace(likely=steps)._asdict()


def test_rounding_does_not_make_it_another_model():
    rounded = with_likely(((5, -0.12), (3, -2.3)), ((7, -0.55), (4, -1.0)))
    assert are_same([ONE._asdict(), None], [rounded, None])


def test_a_server_with_other_log_probabilities_or_of_another_version_is_another_one():
    for other in (
        with_likely(((5, -0.9), (3, -0.6)), ((7, -1.5), (2, -0.3))),
        with_likely(((8, -0.1), (3, -2.4)), ((9, -0.5), (4, -1.0))),
        with_likely(),
        ONE._replace(version="0.33.0")._asdict(),
    ):
        assert not are_same([ONE._asdict()], [other])


def test_a_loaded_model_is_none_on_a_server():
    assert are_same([], [])
    assert not are_same([None, ONE._asdict()], [])
    assert not are_same([None], [ONE._asdict()])

from adafuse.engine.node import gather


def counting(name, turns):
    """A program that asks `turns` times for a node called after it."""
    for turn in range(turns):
        yield [f"{name}{turn}"]
    return name


def run(program):
    """Run a program, answering every request with nothing; returns requests and result."""
    requests = []
    while True:
        try:
            requests.append(next(program))
        except StopIteration as done:
            return requests, done.value


def test_programs_side_by_side_share_their_requests():
    requests, result = run(gather([counting("a", 2), counting("b", 3), counting("c", 0)]))
    assert requests == [["a0", "b0"], ["a1", "b1"], ["b2"]]
    assert result == ["a", "b", "c"]


def test_gathering_nothing_asks_for_nothing():
    assert run(gather([])) == ([], [])


def test_gathers_nest():
    inner = gather([counting("a", 1), counting("b", 1)])
    requests, result = run(gather([inner, counting("c", 2)]))
    assert requests == [["a0", "b0", "c0"], ["c1"]]
    assert result == [["a", "b"], "c"]

from types import SimpleNamespace

from adafuse.engine.scheduler import Failure, Scheduler


class RecordingEngine:
    """Notes which nodes each forward was asked for."""

    def __init__(self):
        self.requests = []

    def evaluate(self, nodes):
        self.requests.append([node.name for node in nodes])


def program(engine, name, turns, fails=False):
    """A program of `turns` requests."""
    for turn in range(turns):
        yield [SimpleNamespace(name=f"{name}{turn}", engine=engine)]
    if fails:
        raise RuntimeError(f"{name} broke")
    return name


def run(engine, batch_size, *jobs):
    """Run jobs (name, turns, fails) and return their outcomes in the order they ended."""
    queue = ((index, lambda job=job: program(engine, *job)) for index, job in enumerate(jobs))
    return [outcome for outcome in Scheduler(batch_size).run(queue) if outcome is not None]


def test_rows_share_forwards_and_finished_ones_are_replaced():
    engine = RecordingEngine()
    outcomes = run(engine, 2, ("a", 1), ("b", 3), ("c", 2))
    assert engine.requests == [["a0", "b0"], ["b1", "c0"], ["b2", "c1"]]
    assert [(outcome.index, outcome.value) for outcome in outcomes] == [
        (0, "a"),
        (1, "b"),
        (2, "c"),
    ]


def test_an_example_that_raises_ends_alone_and_keeps_its_traceback():
    outcomes = run(RecordingEngine(), 2, ("a", 1, True), ("b", 2))
    failure = outcomes[0].value
    assert isinstance(failure, Failure)
    assert failure.error == "a broke"
    assert "RuntimeError" in failure.traceback
    assert outcomes[1].value == "b"


def test_examples_without_requests_end_at_once():
    assert [o.value for o in run(RecordingEngine(), 1, ("a", 0), ("b", 0))] == ["a", "b"]


class Card(RecordingEngine):
    """A recording engine on a device."""

    def __init__(self, device, log):
        super().__init__()
        self.device = device
        self.requests = log

    def start(self, nodes):
        return lambda: self.evaluate(nodes)


def visiting(*engines, name):
    """A program that asks one engine after the other."""
    for turn, engine in enumerate(engines):
        yield [SimpleNamespace(name=f"{name}{turn}", engine=engine)]


def visits(batch_size, **routes):
    """Run programs by name, each with the engines it asks in turn."""
    jobs = [(n, lambda n=n, r=r: visiting(*r, name=n)) for n, r in routes.items()]
    list(Scheduler(batch_size).run(iter(jobs)))


def test_on_one_device_the_model_that_most_examples_wait_for_goes_first():
    log = []
    one, two = Card("cuda:0", log), Card("cuda:0", log)
    visits(3, a=[one, two], b=[two, two], c=[two, two])
    assert log == [["b0", "c0"], ["b1", "c1"], ["a0"], ["a1"]]


def test_models_on_two_devices_run_in_one_turn():
    log = []
    one, two = Card("cuda:0", log), Card("cuda:1", log)
    visits(2, a=[one, two], b=[two, one])
    assert log == [["a0"], ["b0"], ["a1"], ["b1"]] or log == [["a0"], ["b0"], ["b1"], ["a1"]]


def test_requests_to_two_models_at_once_are_waited_for_both():
    log = []
    one, two = Card("cpu", log), Card("cpu", log)

    def program():
        yield [SimpleNamespace(name="x", engine=one), SimpleNamespace(name="y", engine=two)]
        return "done"

    *turns, outcome = Scheduler(1).run(iter([(0, program)]))
    assert log == [["x"], ["y"]]
    assert turns == [None, None]
    assert outcome.value == "done"

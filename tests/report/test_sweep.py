"""Series of runs over an option."""


def run(tau: float, method: str = "adafuse", models: tuple[str, ...] = ("m", "l"), **options):
    return {"method": method, "models": list(models), "options": {"tau": tau} | options}


def test_a_run_stands_at_its_value_or_at_the_default(world) -> None:
    for name, right in (("both", "10"), ("both_b3", "11")):
        world.score("squad", name, right)
    points = world.points("sweep", ["squad"], ["both", "both_b3"], options=["branching"])
    assert [(p.series, p.option, p.x, p.value) for p in points] == [
        ("adafuse", "branching", 1, 50.0),
        ("adafuse", "branching", 3, 100.0),
    ]


def test_methods_with_options_of_other_names_are_series_of_one_sweep(world) -> None:
    for name in ("both", "both_b3", "beams"):
        world.score("squad", name, "10")
    runs, options = ["both", "both_b3", "beams"], ["branching", "width"]
    points = world.points("sweep", ["squad"], runs, options=options)
    assert [(p.series, p.option, p.x) for p in points] == [
        ("adafuse", "branching", 1),
        ("adafuse", "branching", 3),
        ("beam_scaling", "width", 5),
    ]


def test_a_series_is_named_by_what_tells_it_from_the_others(world) -> None:
    world.runs |= {
        "a": run(0.1),
        "b": run(0.1, branching=3),
        "c": run(0.1, models=("l", "m")),
        "d": run(0.2),
    }
    for name in "abcd":
        world.score("squad", name, "10")
    points = world.points("sweep", ["squad"], list("abcd"), options=["tau"])
    assert [p.series for p in points] == [
        "m+l, branching 1", "m+l, branching 3", "l+m, branching 1", "m+l, branching 1",
    ]  # fmt: skip

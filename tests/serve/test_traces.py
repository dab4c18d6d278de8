"""The traces that the server keeps."""

import json

from tests.serve.conftest import PROMPT, completed, streamed


def test_traces_of_requests_open_like_any_other(serving, tmp_path, pair):
    from adafuse.storage.parquet import read_metadata, read_rows
    from adafuse.storage.traces import ORIGIN

    with serving(traces=tmp_path / "traces") as client:
        completed(client, stop=["\n"])
        completed(client, method="unite")
        streamed(client, "/v1/completions", prompt=PROMPT, stop=["\n"])
    files = sorted((tmp_path / "traces").iterdir())
    methods = [read_metadata(file)["settings"]["method"] for file in files]
    assert methods == ["adafuse, unite"]
    assert read_metadata(files[0]).keys() == {"settings", *ORIGIN}
    assert read_metadata(files[0])["settings"]["chat_date"] == ["2024-07-26"] * 2
    rows = read_rows(files[0])
    assert [row["method"] for row in rows] == ["adafuse", "unite", "adafuse"]
    assert json.loads(rows[0]["options"])["stop"] == ["\n"]
    assert [row["prompt"] for row in rows] == [PROMPT] * 3
    assert all(row["rounds"] for row in rows)


def test_a_request_that_took_too_long_is_an_error_in_its_trace_not_a_short_text(serving, tmp_path):
    from adafuse.storage.parquet import read_rows

    with serving(seconds=0.0, traces=tmp_path / "traces") as client:
        assert client.post("/v1/completions", json={"prompt": PROMPT}).status_code == 504
    (file,) = (tmp_path / "traces").iterdir()
    ((reason, error),) = [(row["stop_reason"], row["error"]) for row in read_rows(file)]
    assert reason == "error"
    assert error == "the request took longer than 0 s; ask for less"


def test_traces_are_bounded_and_their_files_do_not_grow_with_stop_strings(
    serving, tmp_path, monkeypatch
):
    import adafuse.serve.traces as module
    from adafuse.storage.parquet import read_rows

    folder = tmp_path / "traces"
    with serving(traces=folder) as client:
        for number in range(8):
            completed(client, stop=[f"stop {number}"], max_tokens=2)
        kept = {file.suffix for file in folder.iterdir()}
        assert kept == {".parquet", ".journal", ".lock"}
    (file,) = folder.iterdir()
    assert len(read_rows(file)) == 8
    monkeypatch.setattr(module, "ROWS", 2)
    with serving(traces=folder, trace_mib=0) as client:
        for _ in range(6):
            completed(client, max_tokens=2)
    assert len(list(folder.iterdir())) == 0


def test_traces_name_the_code_of_plug_ins(serving, tmp_path, monkeypatch):
    import adafuse.decoding.method as module
    from adafuse.storage.parquet import read_metadata

    monkeypatch.setattr(module, "code_of", lambda *used: {"brought 1.0": "code 123"})
    with serving(traces=tmp_path / "traces") as client:
        completed(client, max_tokens=2)
    (file,) = (tmp_path / "traces").iterdir()
    assert read_metadata(file)["versions"]["brought 1.0"] == "code 123"

"""Programs that stand in for `vllm`: with a toy model, or only with an answer at /health."""

import argparse
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil

ROOT = Path(__file__).parents[2]


def program(folder: Path, function: str = "main") -> Path:
    """Write a program that needs no environment, and whose path no other process names."""
    file = folder / "vllm"
    lines = (
        f"#!{sys.executable}",
        "import sys",
        f"sys.path[:0] = [{str(ROOT)!r}]",
        "from tests.support import vllm_stand_in",
        f"vllm_stand_in.{function}()",
    )
    file.write_text("\n".join(lines) + "\n")
    file.chmod(0o755)
    return file


def servers(file: Path) -> list[psutil.Process]:
    """Return the processes that run the program."""
    words = [sys.executable, str(file)]
    processes = psutil.process_iter(["cmdline"])
    return [each for each in processes if (each.info["cmdline"] or [])[:2] == words]


def involved(file: Path) -> list[psutil.Process]:
    """Return the processes that run the program, or have it run."""
    processes = psutil.process_iter(["cmdline"])
    return [each for each in processes if str(file) in (each.info["cmdline"] or ())]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("serve", choices=["serve"])
    parser.add_argument("model")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--logits-processors")
    parser.add_argument("--enable-prefix-caching", action="store_true")
    parser.add_argument("--enable-prompt-tokens-details", action="store_true")
    return parser.parse_args()


def main() -> None:
    """Serve a toy model, as the command line of vLLM names it."""
    from adafuse.ensemble import Ensemble
    from tests.support.stand_in import Distributions, StandIn

    given = _arguments()
    (model,) = Ensemble.from_pretrained([given.model], device="cpu", threads=1).models
    writes = given.logits_processors == "vllm_processor:Spans"
    server = StandIn(Distributions(model), name=given.model, processor=writes)
    server.address, server.port = given.host, given.port
    server.start()
    threading.Event().wait()


class _Healthy(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Say nothing."""


def health() -> None:
    """Answer at /health, and nothing else."""
    given = _arguments()
    ThreadingHTTPServer((given.host, given.port), _Healthy).serve_forever()

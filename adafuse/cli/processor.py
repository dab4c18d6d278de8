"""`adafuse processor`: what a vLLM server needs to score a span while it writes it."""

from pathlib import Path
from typing import Annotated

import typer

from adafuse.errors import UserError
from adafuse.storage.files import check_writable


def processor(
    file: Annotated[Path, typer.Argument(help="The Python file to write.", metavar="FILE")] = Path(
        "vllm_processor.py"
    ),
) -> None:
    """Write the logits processor with which vLLM scores spans as it writes.

    Nothing else of AdaFuse is needed where the server runs.
    """
    from adafuse.servers.vllm import PROCESSOR

    if file.suffix != ".py":
        raise UserError(f"{str(file)!r} is not the name of a Python file; name one such as x.py")
    check_writable(file)
    content = PROCESSOR.read_bytes()
    if file.exists() and b"class Spans(" not in file.read_bytes():
        raise UserError(f"{str(file)!r} exists and is another file; name a new one")
    file.write_bytes(content)
    start = f"PYTHONPATH={file.resolve().parent} vllm serve MODEL --enable-prefix-caching"
    typer.echo(f"{file} is written. Start the server with it:")
    typer.echo(f"  {start} --logits-processors {file.stem}:Spans")

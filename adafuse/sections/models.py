"""The section `models`."""

from typing import Annotated, Literal

from adafuse.sections.section import Flag, Section, Text
from adafuse.told import told


class ModelConfig(Section):
    """A folder or hub id, and how the model is loaded, prompted and placed."""

    path: Annotated[Text, told("a Hugging Face model folder, or a hub id `org/name`")]
    revision: Annotated[
        Text | None,
        told(
            "commit of a hub model",
            "the model is from the hub, unless `snakemake prefetch` has recorded its commit"
            " ([docs/hpc.md](../docs/hpc.md)): without either, a model that changed on the hub is"
            " not noticed",
        ),
    ] = None
    chat: Annotated[
        Flag,
        told("put each prompt into the model's own chat template", "the model is tuned for chat"),
    ] = False
    device: Annotated[
        Text | None,
        told(
            "where this model runs, instead of `decode.device`"
            " ([the names](#a-model-larger-than-one-gpu))",
            "two large models need a GPU each, or one model needs several",
        ),
    ] = None
    quantization: Annotated[
        Literal["int8", "int4"] | None,
        told(
            "weights of 8 or 4 bits; needs `pip install 'adafuse[quantized]'`",
            "a model does not fit otherwise; results change",
        ),
    ] = None
    trust_remote_code: Annotated[
        Flag,
        told(
            "run the Python code that comes with the model",
            "the model needs it, and you have read the code and pinned it with `revision`",
        ),
    ] = False
    allow_pickle: Annotated[
        Flag,
        told(
            "read weights that are not safetensors; such files can hold code",
            "the model has no others, and you trust who made them",
        ),
    ] = False

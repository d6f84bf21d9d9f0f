"""The pipeline: opens a model with options and generates text with it."""

from edgedec.generation.options import GenerateOptions, Message, Prompt
from edgedec.generation.result import Generation, Setup
from edgedec.generation.stream import Stream
from edgedec.pipeline.pipeline import Pipeline

__all__ = [
    "GenerateOptions",
    "Generation",
    "Message",
    "Pipeline",
    "Prompt",
    "Setup",
    "Stream",
]

"""shape — the base of all forms of JSON, and how a field gets its meaning"""

from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """One object: these fields and no others, each with its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


def meaning(text: str, **more: Any) -> Any:
    """A field with a meaning."""
    return Field(description=text, **more)

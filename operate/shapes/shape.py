"""shape — the base of all forms of JSON, and how a field gets its meaning"""

from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """One object: these fields and no others, each with its own type."""

    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)

    @classmethod
    def from_row(cls, row: Any) -> Self:
        """The form of a row of the database that has its fields."""
        return cls.model_validate(row._asdict())


def meaning(text: str, **more: Any) -> Any:
    """A field with a meaning."""
    return Field(description=text, **more)

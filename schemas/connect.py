"""Kafka Connect schemas, as far as Debezium's MySQL connector uses them.

The JSON form is the ``schema`` block of Connect's JsonConverter with the same order of keys: ``type``; ``fields``,
``items``, or ``keys`` and ``values``; ``optional``; ``name``; ``version``; ``doc``; ``parameters``; ``default``; and
``field`` last, for a member of a struct.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any


@dataclass(frozen=True, slots=True)
class ConnectSchema:
    """One Connect schema; ``default`` has the form that the JSON converter prints."""

    type: str
    optional: bool = False
    name: str | None = None
    version: int | None = None
    doc: str | None = None
    parameters: tuple[tuple[str, str], ...] = ()
    default: Any = None
    fields: tuple[ConnectField, ...] = ()
    items: ConnectSchema | None = None
    keys: ConnectSchema | None = None
    values: ConnectSchema | None = None

    def as_optional(self) -> ConnectSchema:
        """Return the same schema as optional."""
        return replace(self, optional=True)

    def to_json(
        self, field: str | None = None, *, default: Callable[[ConnectSchema], Any] | None = None
    ) -> dict[str, Any]:
        """Return the JSON converter's schema block; ``field`` is the name within an enclosing struct.

        ``default`` returns the JSON value of a schema's default; None: the default itself.
        """
        block: dict[str, Any] = {"type": self.type}
        if self.type == "struct":
            block["fields"] = [member.schema.to_json(member.name, default=default) for member in self.fields]
        if self.items is not None:
            block["items"] = self.items.to_json(default=default)
        if self.keys is not None and self.values is not None:
            block["keys"] = self.keys.to_json(default=default)
            block["values"] = self.values.to_json(default=default)
        block["optional"] = self.optional
        if self.name is not None:
            block["name"] = self.name
        if self.version is not None:
            block["version"] = self.version
        if self.doc is not None:
            block["doc"] = self.doc
        if self.parameters:
            block["parameters"] = dict(self.parameters)
        if self.default is not None:
            block["default"] = self.default if default is None else default(self)
        if field is not None:
            block["field"] = field
        return block

    @classmethod
    def from_json(cls, block: Mapping[str, Any]) -> ConnectSchema:
        """Return the schema of a schema block."""
        return cls(
            type=block["type"],
            optional=block.get("optional", False),
            name=block.get("name"),
            version=block.get("version"),
            doc=block.get("doc"),
            parameters=tuple(block.get("parameters", {}).items()),
            default=block.get("default"),
            fields=tuple(ConnectField(member["field"], cls.from_json(member)) for member in block.get("fields", ())),
            items=cls.from_json(block["items"]) if "items" in block else None,
            keys=cls.from_json(block["keys"]) if "keys" in block else None,
            values=cls.from_json(block["values"]) if "values" in block else None,
        )


@dataclass(frozen=True, slots=True)
class ConnectField:
    """A named member of a struct."""

    name: str
    schema: ConnectSchema

    @classmethod
    def of(cls, name: str, type_name: str, *, optional: bool = False) -> ConnectField:
        """Return a field of a type without parameters."""
        return cls(name, ConnectSchema(type_name, optional=optional))

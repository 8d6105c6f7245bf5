"""What the configuration says about the format of records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a schema registry is; the representation contains no password."""

    url: str = field(repr=False)
    """One URL, or several URLs of the same registry, separated by commas."""
    user_info: str = field(default="", repr=False)
    """``user:password``; empty: that of the URL."""
    ca_file: str | None = None
    """PEM file of the trusted authorities; None: those of the system."""
    client_certificate: str | None = None
    """PEM file with the client's certificate and its private key."""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """The converters of a query. A registry means Avro, otherwise JSON."""

    key: RegistrySettings | None = None
    value: RegistrySettings | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """``database.table`` -> its columns as DDL or as a StructType in JSON."""

"""Where a schema registry is and how the producer connects to it."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote, urlsplit, urlunsplit


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """``user_info`` is ``user:password``; the representation contains no password."""

    url: str
    """One URL, or several URLs of the same registry, separated by commas."""
    user_info: str
    auto_register: bool
    ca_file: str
    """PEM file of the trusted authorities; empty: those of the system."""
    client_certificate: str
    """PEM file with the client's certificate and its private key."""
    key_password: str
    """Password of the private key."""

    def __repr__(self) -> str:
        return f"RegistrySettings({', '.join(split_user_info(each)[0] for each in self.url.split(','))})"


def split_user_info(url: str) -> tuple[str, str]:
    """Return a URL without its user and password, and ``user:password`` (empty for none)."""
    parts = urlsplit(url)
    user_info, at, host = parts.netloc.rpartition("@")
    return (urlunsplit(parts._replace(netloc=host)), unquote(user_info)) if at else (url, "")

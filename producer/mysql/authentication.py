"""TLS of a session, and which authentication methods may give the password away."""

from __future__ import annotations

import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from pymysql import _auth
from pymysql.constants import CR
from pymysql.err import OperationalError

from tailrace.runtime.errors import ConfigError

SSL_MODES: Final = ("disabled", "preferred", "required", "verify_ca", "verify_identity")
"""Values of ``database.ssl.mode``."""

ENCRYPTED_MODES: Final = frozenset({"required", "verify_ca", "verify_identity"})
VERIFIED_MODES: Final = frozenset({"verify_ca", "verify_identity"})

_AUTH: Final[Any] = _auth
"""The methods of the driver, which have no types."""

_REFUSED_METHODS: Final = ("mysql_clear_password", "dialog", "mysql_old_password")
"""Methods that send the password in clear, or as a hash that is easily reversed."""

AUTH_REFUSED: Final = CR.CR_AUTH_PLUGIN_ERR
"""Error code of a method that was refused."""


@dataclass(frozen=True, slots=True)
class Tls:
    """How a session is protected. The paths are those of PEM files."""

    mode: str
    ca: str | None = None
    cert: str | None = None
    key: str | None = None
    insecure_authentication: bool = False
    """Whether the server may have the password in clear, or under its own key, without verified TLS."""

    def driver_options(self) -> dict[str, Any]:
        """Return the options of the driver. Raises ConfigError for files that cannot be used."""
        options = _tls(self)
        if self.mode not in VERIFIED_MODES and not self.insecure_authentication:
            options["auth_plugin_map"] = dict(_GUARDED)
        return options


def is_encrypted(connection: Any) -> bool:
    """Return whether the session uses TLS."""
    return isinstance(connection._sock, ssl.SSLSocket)  # noqa: SLF001 - the driver has no public way to ask


def transport_warning(connection: Any, ssl_mode: str) -> str | None:
    """Return what an attacker between the producer and the server could do; None if TLS is verified."""
    if not is_encrypted(connection):
        return (
            f"the connection to the source is not encrypted (database.ssl.mode={ssl_mode}): rows can be read and "
            "changed on the way; set database.ssl.mode=verify_identity and database.ssl.ca"
        )
    if ssl_mode not in VERIFIED_MODES:
        return (
            f"the certificate of the source is not verified (database.ssl.mode={ssl_mode}): another server could "
            "answer in its place; set database.ssl.mode=verify_identity and database.ssl.ca"
        )
    return None


class _Refuses:
    """An authentication method that is refused."""

    def __init__(self, method: str, _connection: Any) -> None:
        self._method = method

    def authenticate(self, _packet: Any) -> Any:
        raise _rejection(self._method)


class _CachingSha2:
    """caching_sha2_password: a hash, or, if the server has none in its cache, the password."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        connection = self._connection
        if not is_encrypted(connection):
            # The driver would ask for a key and encrypt the password with whatever it receives.
            connection.server_public_key = _NoKey()
        return _AUTH.caching_sha2_password_auth(connection, packet)


class _NoKey:
    """In place of a public key. The driver looks at it only when the server demands the password."""

    def __bool__(self) -> bool:
        raise _rejection("caching_sha2_password with a key that the server sends")


class _Sha256:
    """sha256_password: always the password."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def authenticate(self, packet: Any) -> Any:
        if self._connection.password and not is_encrypted(self._connection):
            raise _rejection("sha256_password with a key that the server sends")
        return _AUTH.sha256_password_auth(self._connection, packet)


def _rejection(method: str) -> OperationalError:
    return OperationalError(AUTH_REFUSED, f"the server asks for the authentication method {method}")


_GUARDED: Final[Mapping[str, Callable[[Any], Any]]] = {
    **{method: partial(_Refuses, method) for method in _REFUSED_METHODS},
    "caching_sha2_password": _CachingSha2,
    "sha256_password": _Sha256,
}


def _tls(settings: Tls) -> dict[str, Any]:
    mode = settings.mode
    if mode not in SSL_MODES:
        raise ConfigError([f"database.ssl.mode: {mode!r} is not one of {', '.join(SSL_MODES)}"])
    if mode == "disabled":
        return {"ssl_disabled": True}
    if mode == "preferred":
        return {}  # the default of the driver: TLS if the server offers it
    try:
        context = ssl.create_default_context(cafile=_file("database.ssl.ca", settings.ca))
        certificate = _file("database.ssl.cert", settings.cert)
        if certificate is not None:
            context.load_cert_chain(certificate, _file("database.ssl.key", settings.key))
    except (OSError, ssl.SSLError) as error:
        files = {
            "database.ssl.ca": settings.ca,
            "database.ssl.cert": settings.cert,
            "database.ssl.key": settings.key,
        }
        named = ", ".join(f"{name}={path}" for name, path in files.items() if path)
        raise ConfigError([f"the TLS files cannot be used ({named}): {error}"]) from error
    # Certificates generated by MySQL lack what Python 3.13 requires by default.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.check_hostname = mode == "verify_identity"
    context.verify_mode = ssl.CERT_REQUIRED if mode in VERIFIED_MODES else ssl.CERT_NONE
    return {"ssl": context}


def _file(name: str, path: str | None) -> str | None:
    """Return the path of a readable file. Raises ConfigError that names the property."""
    if path is None:
        return None
    try:
        with open(path, "rb"):
            return path
    except OSError as error:
        raise ConfigError([f"{name}: {path!r} cannot be read: {error.strerror}"]) from error

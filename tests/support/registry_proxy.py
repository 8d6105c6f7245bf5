"""A proxy in front of a real schema registry that adds TLS, a password, or an outage."""

from __future__ import annotations

import ssl
import threading
from base64 import b64encode
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Self
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

_FORWARD = build_opener(ProxyHandler({}))


class CertificateAuthority:
    """Issues certificates for 127.0.0.1. ``trusted`` is the file with its own certificate."""

    def __init__(self, folder: Path, name: str, *, with_rsa: bool = False) -> None:
        """``with_rsa``: for servers that do not know elliptic curves."""
        self._folder = folder
        self._with_rsa = with_rsa
        self._key = self._new_key()
        self._name = _named(name)
        self._certificate = self._sign(self._name, self._key, authority=True)
        self.trusted = folder / f"{name}.pem"
        self.trusted.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def identity(self, name: str, *, password: str = "") -> Path:
        """Return a file with a certificate and its private key."""
        key = self._new_key()
        hidden: serialization.KeySerializationEncryption = (
            serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
        )
        # Older servers read no other form of an RSA key.
        form = serialization.PrivateFormat.TraditionalOpenSSL if self._with_rsa else serialization.PrivateFormat.PKCS8
        path = self._folder / f"{name}-identity.pem"
        path.write_bytes(
            self._sign(_named(name), key).public_bytes(serialization.Encoding.PEM)
            + key.private_bytes(
                serialization.Encoding.PEM,
                form,
                hidden,
            )
        )
        return path

    def _new_key(self) -> ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey:
        if self._with_rsa:
            return rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return ec.generate_private_key(ec.SECP256R1())

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *, authority: bool = False
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder(self._name, subject, key.public_key(), x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
            .sign(self._key, hashes.SHA256())
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class RegistryProxy:
    """Forwards requests to ``target`` (a root URL). A context manager."""

    def __init__(
        self,
        target: str,
        *,
        identity: Path | None = None,
        clients: Path | None = None,
        user_info: str = "",
        out_of_service: bool = False,
    ) -> None:
        """``identity``: the certificate and key for TLS; ``clients``: the authority of client certificates."""
        self.requests = 0
        proxy, wanted = self, f"Basic {b64encode(user_info.encode()).decode()}"

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy.requests += 1
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                if out_of_service:
                    self._answer(503, b"out of service")
                elif user_info and self.headers.get("Authorization") != wanted:
                    self._answer(401, b'{"message":"who are you"}')
                else:
                    kind = self.headers.get("Content-Type", "")
                    request = Request(  # noqa: S310 - http, to a test server
                        target + self.path, data=body or None, headers={"Content-Type": kind}, method=self.command
                    )
                    try:
                        with _FORWARD.open(request, timeout=120) as answer:
                            self._answer(answer.status, answer.read())
                    except HTTPError as error:
                        self._answer(error.code, error.read())

            do_POST = do_GET  # noqa: N815 - the name is defined by the base class

            def _answer(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *args: object) -> None:
                """Log nothing."""

        class Server(ThreadingHTTPServer):
            def handle_error(self, request: object, client_address: object) -> None:
                """Log nothing about clients that fail the handshake."""

        self._server = Server(("127.0.0.1", 0), Handler)
        if identity is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(identity)
            if clients is not None:
                context.load_verify_locations(clients)
                context.verify_mode = ssl.CERT_REQUIRED
            self._server.socket = context.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        scheme = "http" if identity is None else "https"
        self.url = f"{scheme}://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

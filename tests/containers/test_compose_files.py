"""What the images and the compose file say, checked without an engine: every name in them is one that exists."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest

from tailrace.producer.config import describe
from tailrace.producer.config import load as load_producer
from tailrace.spark_consumer.config import load as load_consumer
from tests.containers.compose import COMPOSE_FILE, ROOT

DOCKER: Final = ROOT / "docker"
DOCKERFILES: Final = sorted(DOCKER.glob("*.Dockerfile"))


def _instructions(path: Path) -> list[tuple[str, str]]:
    """Return a Dockerfile's instructions with their arguments, continued lines joined, comments left out."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def _environment(path: Path) -> dict[str, str]:
    pairs = [word.partition("=") for name, rest in _instructions(path) if name == "ENV" for word in rest.split()]
    return {name: value for name, _, value in pairs}


def test_the_producers_settings_are_known_and_each_has_a_meaning() -> None:
    """The mounted file over the image's own environment: no fault, no warning."""
    settled = load_producer(DOCKER / "producer.json", _environment(DOCKER / "producer.Dockerfile"))

    assert settled.warnings == ()
    assert describe(settled)["tailrace.http.address"] == "0.0.0.0"  # noqa: S104 - a container is reached from outside itself


def test_the_images_environment_alone_opens_the_port_that_its_healthcheck_asks() -> None:
    image = DOCKER / "producer.Dockerfile"
    least = {"database.hostname": "h", "database.user": "u", "database.server.id": "1", "topic.prefix": "p"}
    settled = load_producer(None, _environment(image), {**least, "bootstrap.servers": "k:1"})

    assert f"http://127.0.0.1:{settled.ops.http_port}/readyz" in image.read_text(encoding="utf-8")


def test_the_consumers_settings_are_known() -> None:
    image = DOCKER / "spark.Dockerfile"
    settled = load_consumer(DOCKER / "consumer.json", _environment(image))

    assert (settled.topic_prefix, settled.monitor_host) == ("demo", "0.0.0.0")  # noqa: S104
    assert f"http://127.0.0.1:{settled.monitor_port}/livez" in image.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_what_an_image_copies_is_there_and_nobody_is_root(path: Path) -> None:
    instructions = _instructions(path)
    for name, rest in instructions:
        if name == "COPY" and not rest.startswith("--from="):
            *sources, _ = rest.split()
            assert all((ROOT / source).exists() for source in sources), rest
    assert [rest for name, rest in instructions if name == "USER"][-1] == "10001"


def test_the_compose_file_names_files_and_stages_that_exist() -> None:
    text = COMPOSE_FILE.read_text(encoding="utf-8")
    built = re.findall(r"dockerfile: (\S+)(?:\n\s+target: (\S+))?", text)
    assert len(built) == 5
    for dockerfile, target in built:
        stages = re.findall(r"^FROM \S+ AS (\S+)", (ROOT / dockerfile).read_text(encoding="utf-8"), re.MULTILINE)
        assert not target or target in stages
    mounted = re.findall(r'"\./([^:"]+):', text)
    assert len(mounted) == 2
    assert all((DOCKER / name).is_file() for name in mounted)


@pytest.mark.parametrize("name", ["producer.lock", "spark.lock"])
def test_an_images_versions_are_those_that_are_tested(name: str) -> None:
    """Each half's lock is a part of requirements.lock, hashes included."""

    def pins(path: Path) -> set[str]:
        return set(re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip()))

    assert pins(DOCKER / name) <= pins(ROOT / "requirements.lock")


def test_compose_takes_the_file() -> None:
    """By compose's own parser, which needs no engine."""
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(COMPOSE_FILE), "config", "--quiet"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")

"""The images and the compose file, checked without an engine: every name in them exists."""

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
    """Return a Dockerfile's instructions with their arguments: continued lines joined, comments removed."""
    text = re.sub(r"^#.*\n", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE).replace("\\\n", " ")
    return [(line.split(None, 1)[0], line.split(None, 1)[1]) for line in text.splitlines() if line.strip()]


def _copied(path: Path) -> list[str]:
    """Return the files and folders that an image copies from the repository."""
    copies = [rest.split() for name, rest in _instructions(path) if name == "COPY"]
    return [source for words in copies if not words[0].startswith("--from=") for source in words[:-1]]


def _environment(path: Path) -> dict[str, str]:
    pairs = [word.partition("=") for name, rest in _instructions(path) if name == "ENV" for word in rest.split()]
    return {name: value for name, _, value in pairs}


def test_producer_settings_are_known_and_have_an_effect() -> None:
    """The mounted file and the image's environment give no error and no warning."""
    settled = load_producer(DOCKER / "producer.json", _environment(DOCKER / "producer.Dockerfile"))

    assert settled.warnings == ()
    assert describe(settled)["tailrace.http.address"] == "0.0.0.0"  # noqa: S104 - a container is reached from outside itself


def test_healthcheck_uses_the_port_of_the_image() -> None:
    image = DOCKER / "producer.Dockerfile"
    least = {"database.hostname": "h", "database.user": "u", "database.server.id": "1", "topic.prefix": "p"}
    settled = load_producer(None, _environment(image), {**least, "bootstrap.servers": "k:1"})

    assert f"http://127.0.0.1:{settled.ops.http_port}/readyz" in image.read_text(encoding="utf-8")


def test_consumer_settings_are_known() -> None:
    image = DOCKER / "spark.Dockerfile"
    settled = load_consumer(DOCKER / "consumer.json", _environment(image))

    assert (settled.topic_prefix, settled.monitor_host) == ("demo", "0.0.0.0")  # noqa: S104
    assert f"http://127.0.0.1:{settled.monitor_port}/livez" in image.read_text(encoding="utf-8")


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_copied_files_exist_and_the_user_is_not_root(path: Path) -> None:
    assert all((ROOT / source).exists() for source in _copied(path))
    assert [rest for name, rest in _instructions(path) if name == "USER"][-1] == "10001"


@pytest.mark.parametrize("name", ["producer", "spark"])
def test_production_image_copies_the_distribution_and_no_tests(name: str) -> None:
    """What it copies is what setuptools needs, the parts of the distribution and the locks of the image's packages."""
    parts = {"producer": {"producer", "docker/compiler.lock"}, "spark": {"spark_consumer"}}[name]
    parts |= {"runtime", "schemas"}

    copied = _copied(DOCKER / f"{name}.Dockerfile")

    assert set(copied) == {"pyproject.toml", "setup.py", "README.md", f"docker/{name}.lock"} | parts


def test_compose_file_names_existing_files_and_stages() -> None:
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
def test_lock_of_an_image_is_a_part_of_the_tested_lock(name: str) -> None:
    """Versions and hashes are equal."""

    def pins(path: Path) -> set[str]:
        return set(re.split(r"\n(?=\S)", path.read_text(encoding="utf-8").strip()))

    assert pins(DOCKER / name) <= pins(ROOT / "requirements.lock")


def test_compose_accepts_the_file() -> None:
    """Compose's own parser needs no engine."""
    if shutil.which("docker") is None or subprocess.run(["docker", "compose", "version"], check=False).returncode:
        pytest.skip("docker compose is not installed")
    done = subprocess.run(
        ["docker", "compose", "-f", str(COMPOSE_FILE), "config", "--quiet"], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr) == (0, "")

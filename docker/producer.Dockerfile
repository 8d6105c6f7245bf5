# The producer only: no Spark, no Java. Build from the root of the repository.
ARG PYTHON_IMAGE=python:3.11-slim

FROM ${PYTHON_IMAGE} AS build
RUN python -m venv /opt/tailrace
COPY docker/producer.lock /src/producer.lock
RUN /opt/tailrace/bin/pip install --no-cache-dir --require-hashes -r /src/producer.lock
# The optional extension is compiled here; the compiler does not get into the image.
COPY docker/compiler.lock /src/compiler.lock
RUN python -m venv /opt/build && /opt/build/bin/pip install --no-cache-dir --require-hashes -r /src/compiler.lock
COPY pyproject.toml setup.py README.md /src/
COPY schemas /src/schemas
COPY runtime /src/runtime
COPY producer /src/producer
RUN CC="/opt/build/bin/python -m ziglang cc" /opt/build/bin/pip wheel --no-deps --no-build-isolation -w /wheel /src \
    && /opt/tailrace/bin/pip install --no-cache-dir --no-deps /wheel/*.whl
# setup.py leaves out an extension that cannot be built; this image promises it.
RUN /opt/tailrace/bin/python -c "import tailrace.producer.native.codec"

FROM ${PYTHON_IMAGE}
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin tailrace
COPY --from=build /opt/tailrace /opt/tailrace
USER 10001
ENV PYTHONUNBUFFERED=1 TAILRACE_HTTP_ADDRESS=0.0.0.0 TAILRACE_HTTP_PORT=8083
EXPOSE 8083
HEALTHCHECK --interval=5s --timeout=3s --start-period=60s --retries=6 \
    CMD ["/opt/tailrace/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8083/readyz', timeout=2)"]
ENTRYPOINT ["/opt/tailrace/bin/tailrace", "produce"]
CMD ["--config", "/etc/tailrace/producer.json"]

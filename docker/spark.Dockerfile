# The consumer with Spark and its jars. It runs in local mode or is submitted to a cluster.
# Build from the root of the repository.
ARG JAVA_IMAGE=eclipse-temurin:17-jre

FROM ${JAVA_IMAGE} AS build
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv \
    && rm -rf /var/lib/apt/lists/*
RUN python3 -m venv /opt/tailrace
COPY docker/spark.lock /src/spark.lock
RUN /opt/tailrace/bin/pip install --no-cache-dir --require-hashes -r /src/spark.lock
COPY pyproject.toml setup.py README.md /src/
COPY schemas /src/schemas
COPY runtime /src/runtime
COPY spark_consumer /src/spark_consumer
RUN /opt/tailrace/bin/pip install --no-cache-dir --no-deps /src
# The pinned jars, so that a start needs no network.
RUN /opt/tailrace/bin/python -m tailrace.spark_consumer.jars /opt/tailrace/jars

FROM ${JAVA_IMAGE}
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /home/tailrace --shell /usr/sbin/nologin tailrace \
    && install -d -o 10001 -g 10001 /var/lib/tailrace
COPY --from=build /opt/tailrace /opt/tailrace
USER 10001
WORKDIR /home/tailrace
ENV PYTHONUNBUFFERED=1 PYSPARK_PYTHON=/opt/tailrace/bin/python MONITOR_HOST=0.0.0.0 MONITOR_PORT=8084
EXPOSE 8084
VOLUME /var/lib/tailrace
HEALTHCHECK --interval=5s --timeout=3s --start-period=120s --retries=6 \
    CMD ["/opt/tailrace/bin/python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8084/livez', timeout=2)"]
# The shell lists the jars when the container starts: a jar added to the folder needs no other change.
ENTRYPOINT ["/bin/sh", "-c", "SPARK_JARS=$(ls /opt/tailrace/jars/*.jar) exec /opt/tailrace/bin/tailrace consume \"$@\"", "tailrace"]
CMD ["--config", "/etc/tailrace/consumer.json"]

# MySQL, Kafka and the demo, from the packages that the tests use. Build from the root of the repository with --target
# mysql, kafka or demo.
ARG JAVA_IMAGE=eclipse-temurin:17-jre

FROM ${JAVA_IMAGE} AS environment
RUN apt-get update \
    && DEBIAN_FRONTEND=noninteractive apt-get install -y --no-install-recommends python3 python3-venv libaio1 libnuma1 \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --system --uid 10001 --create-home --home-dir /home/tailrace --shell /usr/sbin/nologin tailrace \
    && install -d -o 10001 -g 10001 /data /cache
COPY requirements.lock /src/requirements.lock
RUN python3 -m venv /opt/tailrace \
    && /opt/tailrace/bin/pip install --no-cache-dir --require-hashes -r /src/requirements.lock
COPY pyproject.toml setup.py README.md /src/
COPY runtime /src/runtime
COPY schemas /src/schemas
COPY spark_consumer /src/spark_consumer
RUN /opt/tailrace/bin/pip install --no-cache-dir --no-deps --no-build-isolation /src
COPY tests/__init__.py /src/tests/__init__.py
COPY tests/embedded /src/tests/embedded
USER 10001
WORKDIR /src
ENV PYTHONUNBUFFERED=1 TAILRACE_CACHE=/cache
VOLUME /data

FROM environment AS mysql
RUN /opt/tailrace/bin/python -m tests.embedded.prepare mysql
EXPOSE 3306
HEALTHCHECK --interval=3s --timeout=3s --start-period=60s --retries=10 \
    CMD ["/opt/tailrace/bin/python", "-c", "import pymysql; pymysql.connect(host='127.0.0.1', user='tailrace', password='tailrace')"]
ENTRYPOINT ["/opt/tailrace/bin/python", "-m", "tests.embedded.serve", "mysql", "--port", "3306", "--data", "/data"]

FROM environment AS kafka
RUN /opt/tailrace/bin/python -m tests.embedded.prepare kafka
EXPOSE 9092
HEALTHCHECK --interval=3s --timeout=5s --start-period=60s --retries=10 \
    CMD ["/opt/tailrace/bin/python", "-c", "from confluent_kafka.admin import AdminClient as A; A({'bootstrap.servers': '127.0.0.1:9092'}).list_topics(timeout=4)"]
ENTRYPOINT ["/opt/tailrace/bin/python", "-m", "tests.embedded.serve", "kafka", "--port", "9092", "--data", "/data"]
CMD ["--advertise", "kafka"]

FROM environment AS demo
RUN /opt/tailrace/bin/python -m tests.embedded.prepare spark
COPY producer /src/producer
USER root
RUN /opt/tailrace/bin/pip install --no-cache-dir --no-deps --no-build-isolation /src
USER 10001
COPY tests/demo /src/tests/demo
ENTRYPOINT ["/opt/tailrace/bin/python", "-m", "tests.demo.external"]

# The worker's image: the program, what it needs by the lock, and nothing that builds it.
# Both stages start from the same Python, whatever the architecture; another is given by --build-arg PYTHON_IMAGE=...
ARG PYTHON_IMAGE=python:3.13-slim

FROM ${PYTHON_IMAGE} AS build
SHELL ["/bin/bash", "-euo", "pipefail", "-c"]
WORKDIR /src
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore

# One lock for all; its parts are told apart by "# == name" lines. Only `run` reaches the image, and it comes first:
# a change of the program alone does not install it again.
COPY requirements.lock ./
RUN sed -n '/^# == run:/,/^# == build:/p' requirements.lock > run.lock \
    && sed -n '/^# == build:/,/^# == rest:/p' requirements.lock > build.lock \
    && python3 -m venv --without-pip /opt/sfd-stream \
    && python3 -m pip --python /opt/sfd-stream/bin/python install --require-hashes --no-deps --only-binary :all: --no-compile -r run.lock \
    && python3 -m venv /build \
    && /build/bin/pip install --require-hashes --no-deps --only-binary :all: -r build.lock

# The compiled decoder is optional: `install` fetches a compiler into this stage, `auto` uses one that is there.
ARG COMPILED=auto
# hadolint ignore=DL3008
RUN if [ "$COMPILED" = install ]; then \
        apt-get update && apt-get install -y --no-install-recommends cargo && rm -rf /var/lib/apt/lists/*; \
    fi
COPY pyproject.toml hatch_build.py README.md LICENSE ./
COPY native native
COPY sfd_stream sfd_stream
# Byte code is made here, once, and never checked against dates: the file system is read-only where it runs.
RUN SFD_COMPILED="$COMPILED" /build/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels . \
    && python3 -m pip --python /opt/sfd-stream/bin/python install --no-deps --no-index --no-compile /wheels/*.whl \
    && /opt/sfd-stream/bin/python -m compileall -q --invalidation-mode unchecked-hash /opt/sfd-stream/lib

FROM ${PYTHON_IMAGE}
COPY --from=build /opt/sfd-stream /opt/sfd-stream
# No file runs as another user than the one who starts it.
RUN find / -xdev -type f -perm /6000 -exec chmod a-s {} +

# `make image` gives these; the version is written in sfd_stream/__init__.py alone.
ARG PYTHON_IMAGE
ARG VERSION=unknown
ARG REVISION=unknown
ARG CREATED=unknown
LABEL org.opencontainers.image.title="sfd-stream" \
      org.opencontainers.image.authors="The sfd-stream authors" \
      org.opencontainers.image.base.name="${PYTHON_IMAGE}" \
      org.opencontainers.image.description="A live, certified low-rank sketch of a Kafka topic of sparse rows" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}" \
      org.opencontainers.image.created="${CREATED}"

# One thread for linear algebra before the library is loaded: it would size its pool by the host's cores otherwise.
# worker.blas_threads may ask for more. In a container a port on the loopback would be of no use.
ENV PATH=/opt/sfd-stream/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    OPENBLAS_NUM_THREADS=1 \
    OMP_NUM_THREADS=1 \
    SFD_HTTP__HOST=0.0.0.0

# A number, not a name: Kubernetes' runAsNonRoot can then be checked. It owns nothing and needs no home.
USER 10001:10001
WORKDIR /
EXPOSE 9464
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s --retries=3 CMD ["sfd-stream", "health"]
# SIGTERM is the default stop signal, and the program is PID 1: a last checkpoint, a clean leave, exit 0.
ENTRYPOINT ["sfd-stream"]
CMD ["run"]

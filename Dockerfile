# Images of Octet:
#   docker build --target api .       the API; or, by `serve`, everything in one: API, compile worker, inference worker
#   docker build --target compiler .  the compile worker alone, with the runtimes that builds are compared with
#   docker build --target worker .    answers predictions; has neither the compiler nor the linker
#   docker build --target worker-cuda .   the same on NVIDIA's cards, whose driver the container runtime brings
#
# What is released is built on a base that its digest names, looked up for each release, so that it has the latest fixes:
#   docker build --build-arg BASE=python:3.11-slim@sha256:... --build-arg VERSION=0.2.0 \
#     --build-arg REVISION=$(git rev-parse HEAD) --build-arg CREATED=$(date --utc +%FT%TZ) --target worker .
#
# `--build-arg WITNESSES=no` leaves out of `compiler` and `api` the runtimes that builds are compared with.

ARG BASE=python:3.11-slim

# An environment without the bytecode of its modules: at most a third of them is ever imported. `strip` takes out of libraries
# what only linkers read.
FROM ${BASE} AS tools
ENV PIP_NO_CACHE_DIR=1 PIP_COMPILE=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONDONTWRITEBYTECODE=1
# hadolint ignore=DL3008
RUN apt-get update \
 && apt-get install --yes --no-install-recommends binutils \
 && rm -r /var/lib/apt/lists/* \
 && python3 -m venv /opt/octet

FROM tools AS build
COPY requirements/serve.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/serve.lock
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY octet /src/octet
COPY service /src/service
RUN /opt/octet/bin/pip wheel --no-deps --no-build-isolation --wheel-dir /wheels /src \
 && /opt/octet/bin/pip install --no-deps /wheels/*.whl

# NVIDIA's run-time compiler, for targets that are cards; LiteRT, ONNX Runtime and PyTorch, which builds are compared with.
# PyTorch's builds without CUDA are in its own index; hashes say what may come from there. Then goes what no build loads: of
# zig all but its linker, of the others their C++ headers, programs, tests, converters, other devices' parts and duplicates.
FROM build AS build-compiler
ARG WITNESSES=yes
COPY requirements/cuda.lock requirements/witnesses.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/cuda.lock \
 && if [ "$WITNESSES" = yes ]; then \
      /opt/octet/bin/pip install --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu \
        -r /src/requirements/witnesses.lock; \
    fi
COPY scripts/slim.py /src/
RUN /opt/octet/bin/pip uninstall --yes cmake ninja \
 && python3 /src/slim.py /opt/octet

# What loads and answers has neither what compiles nor what reads model files.
FROM build AS build-worker
COPY requirements/worker.lock /src/requirements/
COPY scripts/slim.py /src/
RUN rm -rf /opt/octet \
 && python3 -m venv /opt/octet \
 && /opt/octet/bin/pip install --require-hashes -r /src/requirements/worker.lock \
 && /opt/octet/bin/pip install --no-deps /wheels/*.whl \
 && /opt/octet/bin/pip uninstall --yes pip setuptools \
 && python3 /src/slim.py /opt/octet

FROM ${BASE} AS base
RUN groupadd --gid 10001 octet \
 && useradd --uid 10001 --gid octet --no-create-home --home-dir /data octet \
 && install --directory --owner octet --group octet /data
ENV PATH=/opt/octet/bin:$PATH PYTHONUNBUFFERED=1 OCTET_DATA_DIR=/data OCTET_HOST=0.0.0.0 OCTET_PORT=8080
ARG VERSION=0.2.0
ARG REVISION=""
ARG CREATED=""
LABEL org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.created="$CREATED"
USER 10001:10001
VOLUME /data
ENTRYPOINT ["octet"]

FROM base AS worker
LABEL org.opencontainers.image.title="Octet worker" \
      org.opencontainers.image.description="Answers predictions of models that are quantized to 8 bits"
COPY --from=build-worker /opt/octet /opt/octet
EXPOSE 8080
HEALTHCHECK --timeout=10s CMD ["octet", "health"]
CMD ["serve", "--no-compile"]

# Which cards a container sees, and what of the driver, it says by these.
FROM worker AS worker-cuda
LABEL org.opencontainers.image.title="Octet worker for NVIDIA's cards" \
      org.opencontainers.image.description="Answers predictions of models that are quantized to 8 bits, on CPUs and NVIDIA's cards"
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS compiler
LABEL org.opencontainers.image.title="Octet compiler" \
      org.opencontainers.image.description="Compiles models that are quantized to 8 bits"
COPY --from=build-compiler /opt/octet /opt/octet
CMD ["compile-worker"]

FROM compiler AS api
LABEL org.opencontainers.image.title="Octet" \
      org.opencontainers.image.description="Compiles models that are quantized to 8 bits, and serves them"
EXPOSE 8080
HEALTHCHECK --timeout=10s CMD ["octet", "health"]
CMD ["serve"]

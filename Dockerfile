# Images of Octet:
#   docker build --target api .       the API; or, by `serve`, everything in one: API, compile worker, inference worker
#   docker build --target compiler .  the compile worker alone, with the runtimes that builds are compared with
#   docker build --target worker .    answers predictions; has neither the compiler nor the linker
#   docker build --target worker-cuda .   the same on NVIDIA's cards, whose driver the container runtime brings
#
# What is released is built on a base that its digest names, looked up for each release, so that it has the latest fixes:
#   docker build --build-arg BASE=python:3.11-slim@sha256:... --build-arg VERSION=0.1.0 \
#     --build-arg REVISION=$(git rev-parse HEAD) --build-arg CREATED=$(date --utc +%FT%TZ) --target worker .
#
# `--build-arg WITNESSES=no` leaves out of `compiler` and `api` the runtimes that builds are compared with.

ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/octet
COPY requirements/serve.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/serve.lock
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY service /src/service
RUN /opt/octet/bin/pip install --no-deps --no-build-isolation /src

# NVIDIA's run-time compiler, for targets that are cards; LiteRT, ONNX Runtime and PyTorch, which builds are compared with.
# PyTorch's builds without CUDA are in its own index; hashes say what may come from there.
FROM build AS build-compiler
ARG WITNESSES=yes
COPY requirements/cuda.lock requirements/witnesses.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/cuda.lock \
 && if [ "$WITNESSES" = yes ]; then \
      /opt/octet/bin/pip install --require-hashes --extra-index-url https://download.pytorch.org/whl/cpu \
        -r /src/requirements/witnesses.lock; \
    fi

# What loads and answers needs neither what compiles nor what reads model files, nor the tests inside of packages.
FROM build AS build-worker
RUN /opt/octet/bin/pip uninstall --yes apache-tvm apache-tvm-ffi ml-dtypes tflite ziglang setuptools pip \
 && find /opt/octet -depth -type d \( -name tests -o -name include \) -path '*/site-packages/*' -exec rm -r {} + \
 && find /opt/octet -name '*.pyi' -delete

FROM ${BASE} AS base
RUN groupadd --gid 10001 octet \
 && useradd --uid 10001 --gid octet --no-create-home --home-dir /data octet \
 && install --directory --owner octet --group octet /data
ENV PATH=/opt/octet/bin:$PATH PYTHONUNBUFFERED=1 OCTET_DATA_DIR=/data OCTET_HOST=0.0.0.0 OCTET_PORT=8080
ARG VERSION=0.1.0 REVISION="" CREATED=""
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

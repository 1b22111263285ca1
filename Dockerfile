# Images of Octet:
#   docker build --target api .       the API; or, by `serve`, everything in one: API, compile worker, inference worker
#   docker build --target compiler .  the compile worker alone, with the runtimes that builds are compared with
#   docker build --target worker .    answers predictions; has neither the compiler nor the linker
#   docker build --target worker-cuda .   the same on NVIDIA's cards, whose driver the container runtime brings
#
# What is released is built on a base that its digest names, looked up for each release, so that it has the latest fixes:
#   docker build --build-arg BASE=python:3.11-slim@sha256:... --target worker .

ARG BASE=python:3.11-slim

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN python3 -m venv /opt/octet
COPY requirements/serve.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/serve.lock
COPY pyproject.toml setup.py README.md LICENSE /src/
COPY service /src/service
RUN /opt/octet/bin/pip install --no-deps --no-build-isolation /src

# NVIDIA's run-time compiler, for targets that are cards; LiteRT, ONNX Runtime and PyTorch, which builds are compared with. uv
# knows where PyTorch's builds without CUDA are.
FROM build AS build-compiler
COPY requirements/cuda.lock requirements/witnesses.lock /src/requirements/
RUN /opt/octet/bin/pip install --require-hashes -r /src/requirements/cuda.lock
RUN python3 -m venv /opt/uv \
 && /opt/uv/bin/pip install uv==0.13.8 \
 && /opt/uv/bin/uv pip install --no-cache --python /opt/octet --torch-backend cpu --require-hashes \
    -r /src/requirements/witnesses.lock

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
USER 10001:10001
VOLUME /data
ENTRYPOINT ["octet"]

FROM base AS worker
COPY --from=build-worker /opt/octet /opt/octet
EXPOSE 8080
HEALTHCHECK --timeout=10s CMD ["octet", "health"]
CMD ["serve", "--no-compile"]

# Which cards a container sees, and what of the driver, it says by these.
FROM worker AS worker-cuda
ENV NVIDIA_VISIBLE_DEVICES=all NVIDIA_DRIVER_CAPABILITIES=compute,utility

FROM base AS compiler
COPY --from=build-compiler /opt/octet /opt/octet
CMD ["compile-worker"]

FROM compiler AS api
EXPOSE 8080
HEALTHCHECK --timeout=10s CMD ["octet", "health"]
CMD ["serve"]

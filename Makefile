# Needs Python 3.11 or newer and make; everything else comes with the locked requirements.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
LOCK := UV_CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/uv pip compile --quiet --universal --fork-strategy fewest \
	--python-version 3.11 --generate-hashes --extra postgres --extra objects --extra signing \
	$(UPGRADE)
# By files, whose fixtures are then made once; most of a test's time is spent in children, which use a core of their own.
# In order of the folders: unit tests, whose files are short, last, so that both processes end at the same time.
PARALLEL := --numprocesses 2 --dist loadfile --no-loadscope-reorder

NATIVE := $(shell find service/native -name '*.cc' -o -name '*.h' -o -name '*.map' -o -name '*.cmake' -o -name CMakeLists.txt)
CPP := '*.cc' '*.h' '*.c' '*.cpp' '*.hpp' # .clang-format-ignore lists exceptions

.DEFAULT_GOAL := help
.PHONY: help setup demo serve wheel javascript test check test-all fuzz test-cluster images tables paper bench bench-serving soak docs messages lint tidy format lock clean

help: ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 15

setup: $(VENV)/.develop ## make .venv, and nothing else
	@echo "To check the subjects of your commits: git config core.hooksPath .githooks"

demo: $(VENV)/.native ## start the service, push the sample model, ask it what a picture shows
	@$(BIN)/python scripts/demo.py

serve: $(VENV)/.native ## start the service on port 8080 (SERVE_ARGS)
	@$(BIN)/octet serve $(SERVE_ARGS)

# Processes that tests start then need not compile Octet's sources again: a fifth of a second each. An empty value means
# that bytecode is written.
test test-all check test-arm: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.develop ## every test but those that take minutes; or T=tests/unit/core/test_target.py alone
	$(BIN)/python -m pytest $(if $(T),$(T),-m "not slow" $(PARALLEL)) $(PYTEST_ARGS)

# What both of the next targets check.
define STYLE
$(BIN)/ruff check .
$(BIN)/ruff format --check .
git ls-files $(CPP) | xargs $(BIN)/clang-format --dry-run --Werror
$(BIN)/mypy
$(BIN)/lint-imports
endef

check: $(VENV)/.develop ## in a minute: style, types, and one model of each format compiled, verified and served
	$(STYLE)
	$(BIN)/python -m pytest tests/smoke

test-all: $(VENV)/.develop ## every test, property tests on new examples, and every model of conformance tests compiled
	HYPOTHESIS_PROFILE=fresh OCTET_TEST_COMPILE_ALL=1 $(BIN)/python -m pytest $(PARALLEL) $(PYTEST_ARGS)

test-arm: $(VENV)/.develop ## every test of kernels on emulated ARM CPUs alone (qemu-user-static)
	OCTET_TEST_ISAS=aarch64 $(BIN)/python -m pytest $(PARALLEL) tests/unit/compiler/kernels tests/unit/compiler/select \
		tests/unit/compiler/qnn/numerics $(PYTEST_ARGS)

test-cluster: $(VENV)/.develop ## the chart on a real cluster, three quarters of an hour (CLUSTER=FOLDER: tests/cluster/README.md)
	OCTET_TEST_CLUSTER=$(CLUSTER) $(BIN)/python -m pytest tests/cluster $(PYTEST_ARGS)

images: $(VENV)/.develop ## the images of tests/cluster as OUT/*.tar, with buildah (OUT=dist/images)
	$(BIN)/python -m tests.support.images_built $(or $(OUT),dist/images) $(IMAGES) --tag $(or $(TAG),1)

COUNT ?= 400
fuzz: $(VENV)/.develop ## random quantized graphs beside ONNX Runtime and LiteRT, an hour (COUNT=400 of each form, SEED=0)
	@failed=0; for form in "onnx onnxruntime" "tflite litert-reference" "tflite xnnpack" "pieces litert-reference" \
	    "pieces xnnpack"; do set -- $$form; \
	  $(BIN)/python -m tests.fuzz.graphs $$1 --numerics $$2 --count $(COUNT) --seed $(or $(SEED),0) || failed=1; \
	done; exit $$failed

tables: $(VENV)/.develop ## rewrite docs/reference/conformance.md from what the conformance tests see: half an hour
	OCTET_TABLES=docs/reference/conformance.md $(BIN)/python -m pytest tests/conformance $(PYTEST_ARGS)

paper: $(VENV)/.develop ## measure the papers' tables, an hour, and rewrite docs/reference/paper.md (PAPER_ARGS="--only accuracy")
	$(BIN)/python -m benchmarks.paper $(PAPER_ARGS)

bench: $(VENV)/.develop ## all models beside all peers, an hour (BENCH_ARGS); or MODEL=model.tflite: build, HTTP, stock TVM
ifdef MODEL
	$(BIN)/python -m benchmarks.building.build_and_serve $(MODEL)
	$(BIN)/python -m benchmarks.contest.stock_tvm $(MODEL)
else
	$(BIN)/python -m benchmarks.setup_peers --making
	-$(BIN)/python -m benchmarks.models
	$(BIN)/python -m benchmarks.contest $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.contest.report
endif

bench-serving: $(VENV)/.develop ## what serving costs, beside the peers' servers, 20 minutes (BENCH_ARGS)
	-$(BIN)/python -m benchmarks.setup_peers
	$(BIN)/python -m benchmarks.serving $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.serving.report
	$(BIN)/python -m benchmarks.serving.text

MINUTES ?= 30
soak: $(VENV)/.develop ## all that a server is asked in its life, each answer checked (MINUTES=30)
	$(BIN)/python -m benchmarks.serving --parts soak --soak-minutes $(MINUTES) $(BENCH_ARGS)
	$(BIN)/python -m benchmarks.serving.report

wheel: $(VENV)/.serve ## dist/*.whl for x86_64 and aarch64, and the client for all other systems
	@rm -rf build/lib build/bdist.* dist
	@for platform in manylinux_2_28_x86_64 manylinux_2_28_aarch64 any; do \
	  $(PIP) wheel --no-deps --no-build-isolation --wheel-dir dist \
	    --config-settings=--build-option=--plat-name=$$platform . || exit 1; done
	@ls dist/*.whl

javascript: $(VENV)/.develop ## dist/octet-client-*.tgz, the client for JavaScript; needs npm
	@$(BIN)/python -m scripts.openapi clients/javascript/build/openapi.json
	@mkdir -p dist && cd clients/javascript && npm ci --no-audit --no-fund && npm pack --pack-destination ../../dist

docs: $(VENV)/.develop ## rewrite docs/reference, and the chart's README, from the code
	$(BIN)/python -m scripts.reference
	$(BIN)/python -m scripts.error_help
	$(BIN)/python -m scripts.chart

messages: $(VENV)/.develop ## rewrite the gRPC messages, and the C++ tables that Python defines
	$(BIN)/python -m scripts.messages

lint: $(VENV)/.develop ## check style, types, import layers, the Dockerfile, the reference and the public API
	$(STYLE)
	$(BIN)/hadolint Dockerfile
	$(BIN)/python -m scripts.reference --check
	$(BIN)/python -m scripts.surface --check
	$(BIN)/python -m scripts.chart --check
	$(BIN)/python -m scripts.messages --check
	$(BIN)/python -m scripts.prose

tidy: $(VENV)/.develop ## check the changed C++ sources with clang-tidy; all of them take five minutes (TIDY_ARGS=--all)
	$(BIN)/python -m scripts.tidy $(TIDY_ARGS)

format: $(VENV)/.develop ## rewrite the sources in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	git ls-files $(CPP) | xargs $(BIN)/clang-format -i

lock: $(VENV)/.develop ## resolve pyproject.toml into requirements/*.lock (UPGRADE=--upgrade takes newer versions)
	$(PIP) install uv==0.13.8
	$(LOCK) --extra server --group build --output-file requirements/serve.lock pyproject.toml
	$(LOCK) --extra worker --constraint requirements/serve.lock --output-file requirements/worker.lock pyproject.toml
	$(LOCK) --extra cuda --constraint requirements/serve.lock --output-file requirements/cuda.lock pyproject.toml
	$(LOCK) --extra server --group dev --constraint requirements/serve.lock --output-file requirements/dev.lock pyproject.toml
	$(filter-out --universal --fork-strategy fewest,$(LOCK)) --extra witnesses --torch-backend cpu \
		--constraint requirements/serve.lock --output-file requirements/witnesses.lock pyproject.toml

clean: ## remove everything that these targets make
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# Stamps rather than the files they stand for: a step that was cut short is done again.
$(VENV)/.made:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Octet needs Python 3.11 or newer: make PYTHON=/path/to/python $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# What serves.
$(VENV)/.serve: $(VENV)/.made requirements/serve.lock pyproject.toml setup.py
	@echo "Installing requirements/serve.lock into $(VENV): about a minute, 1 GB ..."
	@$(BIN)/python scripts/install.py requirements/serve.lock
	@echo "Compiling the C++ code: up to two minutes of processor time ..."
	@$(BIN)/python scripts/install.py --native
	@$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@ $(VENV)/.native

# Compiles what has changed of the native code.
$(VENV)/.native: $(VENV)/.serve $(NATIVE)
	@$(BIN)/python scripts/install.py --native
	@touch $@

# And what tests and checks it.
$(VENV)/.develop: $(VENV)/.native requirements/dev.lock
	@echo "Installing requirements/dev.lock into $(VENV): about a minute, 0.2 GB ..."
	@$(BIN)/python scripts/install.py requirements/dev.lock
	@touch $@

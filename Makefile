# Everything a newcomer types. `make demo` and `make test` work on a fresh clone.
#
#   make demo        set up once, then decode held-out code with the pair that ships
#   make test        set up once (with the development tools), then run the tests
#   make test-changed  the tests of files that differ from main: CHANGED_ARGS="--base COMMIT"
#   make gguf        add the runtime llama.cpp (built from source: minutes, needs a C++ compiler)
#   make check       formatting, lint, types, import rules, help pages
#   make bench       measure, raw records under bench-out/
#   make peers       compare with other runtimes, each in an environment of its own (hours; resumes)
#   make mutants     change single places of the code, list the changes that no test notices (hours)
#   make format      let ruff rewrite what it can
#   make help-pages  write docs/cli.md from the commands, docs/api.md from docstrings, docs/errors.md
#   make android-core  build the phone demo's decoder for this machine: android_demo/decode (Java, Maven)
#   make android-vectors  write android_demo/vectors: what edgedec computes, for ports of it
#   make captures    draw what the commands show in a terminal, as SVG under docs/captures
#   make docs        build docs/ as a site in build/site
#   make android     build and check the APK of android_demo/ (Java, Maven, four Debian tools)
#   make android-test  the tests of android_demo/: the Kotlin ones by Maven, those of the APK
#   make android-aarch64  core's vectors and two texts on an emulated ARM processor (qemu-user-static)
#   make avx2        the tests that depend on kernels, as on a processor without AVX-512 (gcc, objdump)
#   make aarch64     edgedec on emulated ARM processors, Cortex-A72 and A76 (qemu-user; half an hour)
#   make aarch64-quick  a few minutes of it, on a Cortex-A76
#   make aarch64-records   what passes and kernels are like on both: docs/measurements/arm_*.jsonl
#   make train-demo  train the demo pair again (needs torch, hours)
#
# Settings: PYTHON (what makes the environment), VENV (where it stands), PYTEST_ARGS, BENCH_ARGS,
# PEERS_ARGS (as --peers edgedec,openvino --prompts 4), MUTANTS_ARGS (as --count 100 --paths
# edgedec/decoding), ANDROID_ARGS (as --abi arm64-v8a --abi x86_64), ANDROID_TEST_ARGS (pytest's),
# MVN_ARGS (as -o for Maven without a network).

PYTHON ?= python3
VENV ?= .venv
# worksteal keeps a file's tests together, so that few workers build the same fixtures.
PYTEST_ARGS ?= -n auto --maxprocesses 4 --dist worksteal
CHANGED_ARGS ?=
BENCH_ARGS ?=
PEERS_ARGS ?=
MUTANTS_ARGS ?=
ANDROID_ARGS ?=
ANDROID_TEST_ARGS ?=
export MVN_ARGS ?=

BIN := $(VENV)/bin
# Without the warning that setuptools prints, at length, for every editable install.
PIP := PYTHONWARNINGS=ignore $(BIN)/python -m pip --disable-pip-version-check
# An environment of an older checkout has this project under its former name.
FORMER := $(PIP) uninstall --quiet --quiet --yes edgedec
# A stamp says which part of the environment is there; a newer pyproject.toml renews it.
USE := $(VENV)/.edgedec-use
DEV := $(VENV)/.edgedec-dev
REFERENCE := $(VENV)/.edgedec-reference

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup gguf demo test test-changed check bench peers mutants format help-pages train-demo captures docs \
  avx2 aarch64 aarch64-quick aarch64-records android android-aarch64 android-core android-test android-vectors clean

help:
	@sed -n 's/^#   //p' Makefile

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "edgedec needs Python 3.10 or newer: try make PYTHON=python3.12" >&2; exit 2; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.maxsize < 2**32)' || \
	  { echo "$(PYTHON) has 32 bits, for which no runtime is built: install a 64-bit system" >&2; exit 2; }
	@echo "Making an environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV) || { rm -f $(BIN)/python; \
	  echo "$(PYTHON) could not make an environment (on Debian: apt install python3-venv)" >&2; exit 2; }

# The install is editable: src/ is put on the path. Its one symlink leads to edgedec/, whose three
# lead to export/, runtimes/ and models/. New modules and new sub-packages are seen at once, and no
# bare `export`, `runtimes` or `models` becomes importable from elsewhere.
# With what README's commands need: it converts, fetches and serves models, and writes JSON.
$(USE): pyproject.toml | $(BIN)/python
	@echo "Installing edgedec (once)"
	@$(FORMER)
	@$(PIP) install --quiet --editable '.[export,grammar,hub,serve]'
	@touch $@

$(DEV): pyproject.toml | $(BIN)/python
	@echo "Installing edgedec with the exporter and the development tools (once)"
	@$(FORMER)
	@$(PIP) install --quiet --editable '.[dev]'
	@touch $(USE) $@

$(REFERENCE): $(DEV)
	@echo "Installing torch and transformers (once)"
	@$(PIP) install --quiet --editable '.[reference]'
	@touch $@

setup: $(DEV)

gguf: $(USE)
	@echo "Building llama.cpp (about five minutes on two cores)"
	@CMAKE_ARGS="-DGGML_RPC=on $$CMAKE_ARGS" $(PIP) install --quiet --editable '.[gguf]'

demo: $(USE)
	@$(BIN)/edgedec demo

test: $(DEV)
	$(BIN)/python -m pytest $(PYTEST_ARGS)

test-changed: $(DEV)
	$(BIN)/python tools/changed_tests.py $(CHANGED_ARGS) $(PYTEST_ARGS)

check: $(DEV)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/python tools/help_pages.py --check

bench: $(DEV)
	$(BIN)/python -m benchmarks $(BENCH_ARGS)

# The extra gguf writes the files of llama.cpp; without it llama.cpp takes no part, which is said.
peers: $(DEV)
	@$(PIP) install --quiet --editable '.[gguf]' || echo "llama-cpp-python cannot be built here" >&2
	$(BIN)/python -m benchmarks.race $(PEERS_ARGS)

mutants: $(DEV)
	nice -n 15 $(BIN)/python tools/mutants.py $(MUTANTS_ARGS)

format: $(DEV)
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

help-pages: $(DEV)
	$(BIN)/python tools/help_pages.py

android-core:
	@command -v javac >/dev/null || \
	  { echo "android-core needs a JDK, 8 or newer (on Debian: apt install default-jdk-headless)" >&2; exit 2; }
	@command -v mvn >/dev/null || \
	  { echo "android-core needs Maven (on Debian: apt install maven)" >&2; exit 2; }
	@echo "Building android_demo/core (the first time Maven downloads some 100 MB)"
	@cd android_demo && mvn -q $(MVN_ARGS) -pl core -Dmaven.test.skip=true package
	@echo "android_demo/decode"

# texts.json is apart: `python -m tools.vectors --texts`, with the ONNX Runtime that a port has.
android-vectors: $(DEV)
	$(BIN)/python -m tools.vectors

docs: $(DEV)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "build/site/index.html"

captures: $(DEV)
	$(BIN)/python tools/captures.py

# Without bytecode, which would stand among the sources.
ANDROID := $(PYTHON) -B android_demo/apk/build.py

android:
	@$(ANDROID) $(ANDROID_ARGS)

# Needs qemu's user mode as well, and a network for Debian's Java of arm64.
android-aarch64:
	@$(PYTHON) -B -m android_demo.apk.aarch64

# The resources first: the app's classes and tests need the class R and base.apk.
android-test: $(DEV)
	@$(ANDROID) resources
	@mvn --quiet --file android_demo/pom.xml $(MVN_ARGS) test
	$(BIN)/python -B -m pytest -m android -p no:cacheprovider --basetemp=android_demo/build/tests \
	  $(ANDROID_TEST_ARGS) tests/android

# As `make avx2 CLASS=avx_vnni` on one with the VNNI instructions of 256 bits alone.
CLASS ?= avx2
avx2: $(DEV)
	$(BIN)/python -m tools.processor_class $(CLASS)

aarch64: $(DEV)
	$(BIN)/python -m tools.aarch64 checks

aarch64-quick: $(DEV)
	$(BIN)/python -m tools.aarch64 checks --quick cortex-a76

aarch64-records: $(DEV)
	$(BIN)/python -m tools.aarch64 rows
	$(BIN)/python -m tools.aarch64 kernels

train-demo: $(REFERENCE)
	$(BIN)/python -m benchmarks.training.demo.run

# build/ itself stays: the recipe keeps the checkpoints of a training run there.
clean:
	rm -rf build/lib build/bdist.* android_demo/build dist *.egg-info src/*.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis

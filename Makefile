# Two commands do all the set-up on a fresh machine: `make demo` and `make test`.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# The first Python that is new enough; PYTHON=/path/to/python overrides it.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	"$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && command -v "$$p" && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
# Python compiles what it imports; compiling all that is installed would take longer than the demo.
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# One BLAS thread: bit-identical replay needs a fixed number, and workers scale by partitions.
export OPENBLAS_NUM_THREADS ?= 1
export MKL_NUM_THREADS ?= 1
export OMP_NUM_THREADS ?= 1
# Compiled modules are kept, whatever the environment says: the tests start hundreds of processes, and each would compile
# everything that it imports again, for two seconds.
export PYTHONDONTWRITEBYTECODE :=
# Where the project is published, as https://host/path; it is nowhere in the sources.
REPOSITORY_URL ?=
# What is built goes here.
DIST ?= dist
# The version is written in one place.
VERSION := $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' sfd_stream/__init__.py)

.PHONY: help setup compiled demo test test-all lint types imports tools test-page unit unit-all simulate torture fuzz lowest test-lowest \
	test-lowest-short chart test-chart chart-package chart-login chart-push image image-push image-sign test-image test-k8s bench \
	house docs docs-site lock dist release-check release-notes sbom audit clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{printf "  make %-17s %s\n", $$1, $$2}'

# uv installs in seconds what takes pip a minute. It does not read pip's settings, so where it fails pip has its turn.
INSTALL = $(BIN)/uv pip install --quiet --python $(BIN)/python --require-hashes --no-deps -r $(1) 2> $(VENV)/uv.log \
	|| $(PIP) --require-hashes --no-deps -r $(1)

# What the program needs is a tenth of what judging it needs: the demo waits for no more.
$(RUN_STAMP): requirements.lock pyproject.toml
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed: install it, or say make PYTHON=/path/to/python"; exit 1; }
	@echo "setting up $(VENV) with $$($(PYTHON) --version)"
	@$(PYTHON) -m venv $(VENV)
	@sed '/^# == rest:/,$$d' requirements.lock > $(VENV)/run.lock
	@awk '/^[a-z0-9]/ { wanted = /^uv==/ } wanted' requirements.lock > $(VENV)/uv.lock
	@$(PIP) --require-hashes --no-deps -r $(VENV)/uv.lock
	@$(call INSTALL,$(VENV)/run.lock)
	@$(PIP) --no-deps --no-build-isolation -e .
	@touch $@

$(STAMP): $(RUN_STAMP)
	@echo "adding to $(VENV) what tests and benchmarks need"
	@$(call INSTALL,requirements.lock)
	@touch $@

# Where cargo is found: names and records are decoded several times as fast. All else works without it.
compiled: $(RUN_STAMP) ## compile the decoder in native/ after a change of it; set-up has done it where cargo is found
	@$(BIN)/python hatch_build.py

setup: $(STAMP) ## make .venv with everything pinned, and stop

demo: $(RUN_STAMP) ## see what it is for: rows in, a certified sketch out; ARGS=--stay keeps it running
	@$(BIN)/sfd-stream demo $(ARGS)

test: lint types imports unit ## judge the code in some 6 minutes: every law, with a smoke of each on a real Kafka and S3

test-all: lint types imports unit-all test-lowest-short ## as `make test`, with the long tests: kills at every point, many seeds, large cases

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: $(STAMP)
	$(BIN)/mypy

imports: $(STAMP)
	$(BIN)/lint-imports

# System tools are installed where CI=true; elsewhere tests without theirs are skipped, and say what to install.
install = @if [ "$${CI:-}" = true ] && ! command -v $(1) > /dev/null; then \
	apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2); fi

tools:
	$(call install,cargo,cargo)
	$(call install,promtool,prometheus)
	$(call install,npm,nodejs npm)
	$(call install,mvn,maven openjdk-17-jdk-headless)

test-page: $(STAMP) ## the status page in a real browser
	$(call install,chromium,chromium)
	$(BIN)/pytest tests/system/page -m browser

PYTEST := $(BIN)/pytest --dist loadgroup -n
unit: $(STAMP) tools compiled
	$(PYTEST) 6 -m "not slow and not browser and not image and not k8s"

# What failed runs once more, alone, if it is not much: both results are printed (tests/support/again.py).
ALL := -m "not browser and not image and not k8s"
unit-all: $(STAMP) tools compiled
	$(PYTEST) 4 $(ALL) --durations=25 --durations-min=10 --cov --cov-report=term || { [ $$? = 1 ] && $(BIN)/python -m tests.support.again $(ALL); }

SEEDS ?= 500
simulate: $(STAMP) ## run the real worker in simulation: SEEDS=N seeds, what they covered, what failed
	$(BIN)/python -m tests.simulation --seeds $(SEEDS) $(ARGS)

MINUTES ?= 5
SEED ?= 0
torture: $(STAMP) tools ## real workers on a real Kafka and store under MINUTES=M of random faults, planned by SEED=S
	$(BIN)/python -m tests.torture --minutes $(MINUTES) --seed $(SEED) $(ARGS)

fuzz: $(STAMP) ## fuzz every decoder for MINUTES=M; what fails is kept in tests/fuzz/corpus
	$(BIN)/python -m tests.fuzz --minutes $(MINUTES) --seed $(SEED) $(ARGS)

LOWEST := $(VENV)/lowest
NO_BROKER := -m "not slow and not real_kafka and not real_s3 and not browser and not image and not k8s" -n 4 --dist loadgroup
# An old package may use what a newer one of another project deprecates: that is no fault of ours.
NO_BROKER += -W ignore::DeprecationWarning

# The oldest versions that pyproject.toml allows, and for the tests what is pinned. The newest googleapis-common-protos, which
# tests of the registry import, wants a newer protobuf.
lowest: $(STAMP)
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(LOWEST)
	@sed -n '/^# == build:/,$$p' requirements.lock > $(VENV)/rest.lock
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --resolution lowest-direct -r pyproject.toml --extra plot --extra avro --extra protobuf googleapis-common-protos==1.70
	@$(BIN)/uv pip freeze --quiet --python $(LOWEST)/bin/python > $(VENV)/lowest.txt
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps -r $(VENV)/rest.lock
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps -r $(VENV)/lowest.txt
	@$(BIN)/uv pip install --quiet --python $(LOWEST)/bin/python --no-deps --no-build-isolation -e .

# Without the tests of the lock, which look at what the installed packages need: here others are installed.
test-lowest: lowest ## the tests that need no broker, on the oldest versions of everything that pyproject.toml allows
	$(LOWEST)/bin/pytest $(NO_BROKER) --ignore tests/docs --ignore tests/deploy/test_lock.py

test-lowest-short: lowest
	$(LOWEST)/bin/pytest $(NO_BROKER) tests/unit/cli tests/unit/config tests/unit/tools tests/unit/sketch/test_estimator.py tests/unit/wire/test_snapshots.py \
		tests/unit/kafka/test_schema_registry.py tests/unit/wire/formats/test_from_protobuf.py tests/unit/wire/formats/test_proto_text.py

chart: $(STAMP) ## renew what the chart copies, and its golden files
	$(BIN)/python -m tests.deploy.chart

test-chart: $(STAMP) tools ## the tests of the chart and of what is deployed
	$(PYTEST) 4 tests/deploy

IMAGE_REPOSITORY ?= sfd-stream
chart-package: $(STAMP) ## pack the chart into dist/; IMAGE_REPOSITORY=host/name is its image, REPOSITORY_URL=https://... its home
	@rm -rf $(DIST)/chart $(DIST)/sfd-stream-*.tgz && mkdir -p $(DIST)/chart && cp -r helm/sfd-stream $(DIST)/chart/
	@$(BIN)/python -m tests.deploy.release chart $(DIST)/chart/sfd-stream $(IMAGE_REPOSITORY) $(REPOSITORY_URL)
	@$(BIN)/helm package $(DIST)/chart/sfd-stream --destination $(DIST)
	@rm -rf $(DIST)/chart

# The registry comes from the caller, as host/path. HELM_FLAGS=--plain-http is for one on this machine.
CHART_REGISTRY ?=
chart-login: $(STAMP) ## log in to CHART_REGISTRY as HELM_USER with the password in the environment variable HELM_PASSWORD
	@printenv HELM_PASSWORD | $(BIN)/helm registry login $(firstword $(subst /, ,$(CHART_REGISTRY))) -u $(HELM_USER) --password-stdin

chart-push: chart-package ## pack the chart and push it; CHART_REGISTRY=host/path names where to
	@test -n "$(CHART_REGISTRY)" || { echo "say where to: make chart-push CHART_REGISTRY=host/path"; exit 1; }
	@$(BIN)/helm push $(DIST)/sfd-stream-$(VERSION).tgz oci://$(CHART_REGISTRY) $(HELM_FLAGS)

DOCKER ?= docker
IMAGE ?= sfd-stream:$(VERSION)

# What is not known is left out: REPOSITORY_URL becomes the labels source, url and documentation.
IMAGE_LABELS = --build-arg VERSION=$(VERSION) \
	--build-arg REVISION=$$(git rev-parse HEAD 2>/dev/null || echo unknown) \
	--build-arg CREATED=$$(git log -1 --format=%cI 2>/dev/null || echo unknown) \
	$(if $(REPOSITORY_URL),--label org.opencontainers.image.source=$(REPOSITORY_URL) --label org.opencontainers.image.url=$(REPOSITORY_URL) \
	--label org.opencontainers.image.documentation=$(REPOSITORY_URL)/blob/v$(VERSION)/docs/index.md)

# install: with a compiler in the stage that builds; auto: with one that its base image has; 0: without.
COMPILED ?= auto
image: ## build the container image; IMAGE=name:tag names it; COMPILED=install adds the compiled decoder
	DOCKER_BUILDKIT=1 $(DOCKER) build --tag $(IMAGE) --build-arg COMPILED=$(COMPILED) $(IMAGE_LABELS) $(IMAGE_FLAGS) .

PLATFORMS ?= linux/amd64,linux/arm64
image-push: ## build the image for PLATFORMS with SBOM and provenance, and push it; needs buildx and a registry
	@mkdir -p $(DIST)
	$(DOCKER) buildx build --platform $(PLATFORMS) --tag $(IMAGE) --build-arg COMPILED=$(COMPILED) $(IMAGE_LABELS) $(IMAGE_FLAGS) \
		--sbom=true --provenance=mode=max --metadata-file $(DIST)/image.json --push .

COSIGN ?= cosign
image-sign: ## sign what image-push has pushed, by its digest; IMAGE=name without a tag
	$(COSIGN) sign --yes $(IMAGE)@$$(sed -n 's/.*"containerimage.digest": "\(sha256:[0-9a-f]*\)".*/\1/p' $(DIST)/image.json)

test-image: $(STAMP) ## build the image on a real engine and run it against a real Kafka
	$(BIN)/pytest -m image --timeout 1800 tests/deploy/image

test-k8s: $(STAMP) ## install, upgrade, roll back on a real API server; builds it the first time, for minutes
	$(BIN)/pytest -m k8s --timeout 3600 tests/deploy/k8s

bench: $(STAMP) ## reprint every figure of the README; most of an hour, and Java for the stream's
	$(BIN)/python -m benchmarks.sketch --long
	$(BIN)/python -m benchmarks.stream

house: $(STAMP) ## print how readable the code is, with goals; ARGS="--against REV" compares
	@$(BIN)/python -m tests.house $(ARGS)

docs: $(STAMP) ## run the pages and paste what they print; draw their pictures
	$(BIN)/python -m tests.docs.draw
	$(BIN)/python -m tests.docs.paste

docs-site: $(STAMP) ## build the pages as a site into dist/site; a broken link is an error
	@NO_MKDOCS_2_WARNING=1 SFD_REPOSITORY_URL=$(REPOSITORY_URL) $(BIN)/mkdocs build --quiet --strict --site-dir $(DIST)/site
	@echo "$(DIST)/site/index.html"

PIN := $(BIN)/python -m uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11
# The blocks of file 2 whose first line (name==version, and when) is in file 1 (want=1), or is not (want=0).
BLOCKS := awk 'NR == FNR { if (/^[a-z0-9]/) known[$$0]; next } /^[a-z0-9]/ { found = $$0 in known } found == want'
LOCK_TMP := $(VENV)/lock

lock: $(STAMP) ## pin what pyproject.toml names: names, versions and hashes, no host; UPGRADE=1 takes the newest of all
	@rm -rf $(LOCK_TMP) && mkdir -p $(LOCK_TMP)
	@$(if $(UPGRADE),,cp requirements.lock $(LOCK_TMP)/all)
	$(PIN) --all-extras --group dev pyproject.toml -o $(LOCK_TMP)/all
	$(PIN) --constraint $(LOCK_TMP)/all --extra avro --extra protobuf pyproject.toml -o $(LOCK_TMP)/run
	$(PIN) --constraint $(LOCK_TMP)/all --group build -o $(LOCK_TMP)/build
	@$(BLOCKS) want=0 $(LOCK_TMP)/run $(LOCK_TMP)/all > $(LOCK_TMP)/not-run
	@{ echo "# == run: what the program needs, all formats included; the image installs this part alone"; \
		sed "/^    #   -c /d" $(LOCK_TMP)/run; \
		echo "# == build: what makes the wheel"; \
		$(BLOCKS) want=1 $(LOCK_TMP)/build $(LOCK_TMP)/not-run; \
		echo "# == rest: tests, benchmarks, tools"; \
		$(BLOCKS) want=0 $(LOCK_TMP)/build $(LOCK_TMP)/not-run; } > requirements.lock

dist: $(STAMP) ## build wheel and archive of the sources into dist/ and check them; REPOSITORY_URL=https://... names the project's home
	@mkdir -p $(DIST) && rm -f $(DIST)/*.whl $(DIST)/*.tar.gz
	@SFD_REPOSITORY_URL=$(REPOSITORY_URL) $(BIN)/python -m hatchling build -d $(DIST)
	@$(BIN)/twine check --strict $(DIST)/*.whl $(DIST)/*.tar.gz

release-check: $(STAMP) ## whether this can be released as TAG=v1.2.3: version, chart, citation, changelog agree; NEEDED=A,B are set
	@$(BIN)/python -m tests.deploy.release check "$(TAG)" $(NEEDED)

release-notes: $(STAMP) ## print what the changelog says of this version
	@$(BIN)/python -m tests.deploy.release notes

SBOM ?= $(DIST)/sbom.cdx.json

sbom: $(STAMP) ## write a CycloneDX bill of materials of what the program needs; SBOM=file names it
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(VENV)/sbom
	@sed '/^# == build:/,$$d' requirements.lock > $(VENV)/sbom.lock
	@$(BIN)/uv pip install --quiet --python $(VENV)/sbom/bin/python --require-hashes --no-deps -r $(VENV)/sbom.lock
	@mkdir -p $(dir $(SBOM))
	@sed 's/^dynamic = .*/version = "$(VERSION)"/' pyproject.toml > $(VENV)/sbom/pyproject.toml
	@$(BIN)/cyclonedx-py environment --pyproject $(VENV)/sbom/pyproject.toml --output-reproducible --output-file $(SBOM) $(VENV)/sbom/bin/python
	@echo "$(SBOM)"

audit: $(STAMP) ## look up known vulnerabilities of what the program needs; says so when it cannot reach its data
	@$(BIN)/python -m tests.deploy.audit

clean: ## remove what the targets made
	rm -rf $(VENV) dist native/target native/Cargo.lock sfd_stream/wire/*.so .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage*

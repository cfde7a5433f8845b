# `make results` builds the environment and the default experiment, `make test` checks the project.
# `make plan` shows what `make results` would do and cost, `make why` says for what reason.
# All is installed into .venv; nothing outside this folder changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= config/pydocs.yaml
# torch comes first and alone: whatever else asks for torch then finds it installed.
TORCH := $(shell grep '^torch==' requirements.lock)
# Alone, too: it must be compiled, and where it cannot be, all else still works.
HNSWLIB := $(shell grep '^hnswlib==' requirements.lock)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# When make started, to tell the set-up's time from the build's.
STARTED := $(shell date +%s)

.DEFAULT_GOAL := results
.PHONY: results verdicts explore plan why environment hnswlib test lint bench gpu-check drill rehearsal dress-rehearsal lock clean-cache clean

# FORCE=1 runs also what seems too much for this machine.
# make expands a recipe after the prerequisites are made: the $(shell) below gives the time at which the build starts.
results: environment
	$(BIN)/python -m workflow.plan $(if $(FORCE),--force,--run) --configfile "$(CONFIG)"
	@$(BIN)/python -m workflow.verdicts --configfile "$(CONFIG)"
	@build=$(shell date +%s); set_up=$$((build - $(STARTED))); build=$$(($$(date +%s) - build)); \
	printf 'set-up %d min %d s, build %d min %d s\n' \
		$$((set_up / 60)) $$((set_up % 60)) $$((build / 60)) $$((build % 60))

# What the last lines of `make results` say of its systems.
verdicts: environment
	@$(BIN)/python -m workflow.verdicts --configfile "$(CONFIG)"

plan: environment
	$(BIN)/python -m workflow.plan --configfile "$(CONFIG)"

# The explorer with the systems open: any query, in a browser. OPTIONS="--port 0 --systems bm25" for more.
explore: environment
	$(BIN)/python -m cort.explore --experiment "$(CONFIG)" --open $(OPTIONS)

# TARGET=results/... asks about one file.
why: environment
	$(BIN)/python -m workflow.why $(TARGET) --configfile "$(CONFIG)"

environment: $(VENV)/.installed

$(VENV)/.installed: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("error: found Python %d.%d, expected 3.11 or newer; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@echo 'Set-up, step 1 of 3: $(TORCH) and what it needs, the largest download'
	$(PIP) install $(TORCH)
	@echo 'Set-up, step 2 of 3: all other locked packages'
	grep --invert-match '^hnswlib==' requirements.lock | $(PIP) install --no-deps --requirement /dev/stdin
	@echo 'Set-up, step 3 of 3: $(HNSWLIB), which is compiled here'
	@$(PIP) install --no-deps --no-cache-dir $(HNSWLIB) > $(VENV)/hnswlib.log 2>&1 || echo "warning: $(HNSWLIB) could not be compiled ($(VENV)/hnswlib.log says why); for systems with hnsw, and only for these, install g++ and the headers of Python, then run make hnswlib" >&2
	touch $@

# After a compiler was installed. What pip keeps may have been compiled on another machine.
hnswlib: environment
	$(PIP) install --no-deps --no-cache-dir --force-reinstall $(HNSWLIB)

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	$(PIP) install --no-deps --requirement requirements-dev.lock
	touch $@

# Three workers on two cores, for many tests wait as much as they compute. Those of a file share fixtures, and stay together.
PYTEST = $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder --durations 20
.PHONY: test-all coverage

# What every change must pass, in minutes: one build of a tiny experiment, and tests of all there is.
test: $(VENV)/.installed-dev
	$(PYTEST) -m "not exhaustive"

# More settings, faults and kills, for hours on two cores.
test-all: $(VENV)/.installed-dev
	$(PYTEST)

# The share of lines that `make test` runs, also in processes that tests start, and the ten modules with the least.
coverage: $(VENV)/.installed-dev
	$(PYTEST) -m "not exhaustive" --cov --cov-report=
	$(BIN)/coverage report --sort cover | sed -n '1,12p;$$p'

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/snakemake --lint
	$(BIN)/python -m scripts.config_reference --check

# DATA=FOLDER with collection.tsv, queries.{dev,train}.tsv and qrels.{dev,train}.tsv measures BM25 and training, too;
# MODEL=FOLDER with a model trains that one, and measures encoding beside sentence-transformers.
bench: environment
	$(BIN)/python -m scripts.bench.quickstart
	$(BIN)/python -m scripts.bench.workflow
	$(BIN)/python -m scripts.bench.exact
	$(if $(DATA),$(BIN)/python -m scripts.bench.bm25 --data "$(DATA)")
	$(if $(DATA),$(BIN)/python -m scripts.bench.training --data "$(DATA)" $(if $(MODEL),--base-model "$(MODEL)"))
	$(if $(and $(DATA),$(MODEL)),$(BIN)/python -m scripts.bench.encode --data "$(DATA)" --base-model "$(MODEL)")

# On a machine with a GPU, in minutes: every path on it against the CPU (tests/gpu), then figures beside their bounds.
# CHECK="--device cpu" tries it without a GPU, CHECK="--only encode search" parts of it.
gpu-check: $(VENV)/.installed-dev
	$(BIN)/python -m scripts.gpu_check --output gpu-check.json $(CHECK)

# Needs FOLDER; SIZES="1/64 1/16" for less than the full size, which takes hours and 80 GB; STEPS="explorer bm25" for some.
rehearsal: environment
	$(BIN)/python -m scripts.rehearsal --folder "$(or $(FOLDER),$(error set FOLDER=...))" $(if $(SIZES),--sizes $(SIZES)) $(if $(STEPS),--steps $(STEPS))

# Shipped experiments, unchanged, with small files and models of this machine; needs cbor2, to make TREC-CAR's files.
# DATA=FOLDER takes passages from samples of MS MARCO (else ../shared/data if it is there, else made-up ones);
# CONFIGS="config/nfcorpus.yaml" chooses experiments, KILLS=0 how often each is killed, SLURM=1 sends jobs to a SLURM here.
dress-rehearsal: $(VENV)/.installed-dev
	DRESS_DATA="$(DATA)" DRESS_CONFIGS="$(CONFIGS)" DRESS_KILLS="$(KILLS)" DRESS_SLURM="$(SLURM)" \
		$(BIN)/python -m pytest -s tests/end_to_end/test_dress_rehearsal.py

# Kills builds of the tests' tiny experiment; KILLS=100 SEED=2 for more.
drill: $(VENV)/.installed-dev
	DRILL_KILLS="$(KILLS)" DRILL_SEED="$(SEED)" $(BIN)/python -m pytest -s tests/end_to_end/test_drill.py -k beginning

# Resolve what pyproject.toml asks for again, in an environment of its own.
lock:
	scripts/lock

# What can go without making anything run again.
clean-cache: environment
	$(BIN)/python -m scripts.clean_cache

clean:
	rm -rf results logs benchmarks .snakemake

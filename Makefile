# `make results` builds the environment and the default experiment, `make test` checks the project.
# `make plan` shows what `make results` would do and what is missing, `make why` explains why.
# Everything is installed into .venv; nothing outside this folder changes.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
CONFIG ?= config/pydocs.yaml
# TABLE=cort/1 builds one table of a paper: config/tables/cort/1.yaml.
ifdef TABLE
override CONFIG := config/tables/$(TABLE).yaml
TABLES := $(patsubst config/tables/%.yaml,%,$(sort $(wildcard config/tables/*/*.yaml)))
$(if $(filter $(TABLE),$(TABLES)),,$(error TABLE: found $(TABLE), expected one of $(TABLES); name one))
endif
# Installed first: packages that depend on torch then find it.
TORCH := $(shell grep '^torch==' requirements.lock)
PIP := $(BIN)/python -m pip --disable-pip-version-check
# The start of make, to time the set-up and the build separately.
STARTED := $(shell date +%s)

# What a caller wrote in a variable, as one word of the shell: also a name with blanks, quotes or dollars.
quoted = '$(subst ','\'',$(value $1))'
# An option with the value of a variable, if it has one; or refuse a call without it.
option = $(if $(value $2),$1 $(call quoted,$2))
needed = $1 $(if $(value $2),$(call quoted,$2),$(error set $2=...))

.DEFAULT_GOAL := results
.PHONY: results summary inspect verdict matrix gate compare publish explore plan why environment test lint bench gpu-check crash-test slurm-test full-size smoke-test docs lock clean-cache clean

# make expands a recipe after its prerequisites are made, so $(shell) below is the time at which the build starts.
results: environment
	$(BIN)/python -m workflow.build --configfile $(call quoted,CONFIG)
	@$(BIN)/python -m workflow.summary --configfile $(call quoted,CONFIG)
	@build=$(shell date +%s); set_up=$$((build - $(STARTED))); build=$$(($$(date +%s) - build)); \
	printf 'set-up %d min %d s, build %d min %d s\n' \
		$$((set_up / 60)) $$((set_up % 60)) $$((build / 60)) $$((build % 60))

# Prints the last lines of `make results` again.
summary: environment
	@$(BIN)/python -m workflow.summary --configfile $(call quoted,CONFIG)

# Says what is in the data of CONFIG: a line for everything that is odd, and a table with its ids.
inspect: environment
	$(BIN)/python -m workflow.build --configfile $(call quoted,CONFIG) -- --until inspect
	@$(BIN)/python -m workflow.summary --inspection --configfile $(call quoted,CONFIG)

# Compares systems on the documents of FOLDER and writes the best for search engines. QUERIES=questions.txt adds real user
# queries, QRELS=judgements.tsv their judgements, MODEL=FOLDER or NAME@COMMIT an encoder, NAME=... names the result, and
# LANGUAGE=de their language, where it is not what most documents seem to be in. (Linux has a variable of that name, too.)
# WORDS="100 200 400" compares sizes of passages, each in an experiment of its own. Configs are written to config/verdict.
verdict: environment models/wordllama
	@$(BIN)/python -m workflow.verdict $(call needed,--folder,FOLDER) $(call option,--queries,QUERIES) \
		$(call option,--qrels,QRELS) $(call option,--model,MODEL) $(call option,--name,NAME) \
		$(if $(filter command,$(origin LANGUAGE)),$(call option,--language,LANGUAGE)) $(call option,--words,WORDS)

# Builds the experiments CONFIGS="config/a.yaml config/b.yaml", after checking all of them, then one table of their systems.
# OPTIONS="--measures RR@10" chooses what it shows, OUTPUT=FOLDER where it goes.
matrix: CONFIGS := $(or $(CONFIGS),$(addprefix config/matrix/,nfcorpus.yaml scifact.yaml pydocs.yaml))
matrix: OUTPUT := $(or $(OUTPUT),results/matrix)
matrix: environment
	@status=0; for config in $(CONFIGS); do \
		$(BIN)/python -m workflow.plan --configfile "$$config" > /dev/null || status=1; done; exit $$status
	@for config in $(CONFIGS); do \
		$(BIN)/python -m workflow.build --configfile "$$config" || exit; done
	$(BIN)/python -m cort.matrix --experiments $(CONFIGS) --output-folder "$(OUTPUT)" $(OPTIONS)
	@echo "file://$(abspath $(OUTPUT))/index.html"

# Fails if a system of CONFIG is significantly worse than in BASELINE=baseline.json. SYSTEM=fused names it, LOSS=0.01 accepts a
# loss, UPDATE=1 writes the baseline anew. `make` exits with 2 after any failure; the module tells 1 (a loss) from 2 (unknown).
gate: environment
	@$(BIN)/python -m workflow.gate --configfile $(call quoted,CONFIG) $(call needed,--baseline,BASELINE) \
		$(call option,--system,SYSTEM) $(call option,--split,SPLIT) $(call option,--loss,LOSS) $(if $(UPDATE),--update)

# Compares two builds on the queries that both have: folders of results, or configs. SYSTEM=fused names a system, SYSTEM=old=new
# one of each; else all that both have.
compare: environment
	@$(BIN)/python -m workflow.versus $(call needed,--a,A) $(call needed,--b,B) $(call needed,--split,SPLIT) \
		$(call option,--system,SYSTEM)

# Pushes the model folder MODEL=results/... to the repository REPO=USER/NAME of a hub, with your token from HF_TOKEN.
# A new repository is private, unless OPTIONS="--visibility public".
publish: environment
	$(BIN)/python -m cort.publish $(call needed,--model,MODEL) $(call needed,--repo,REPO) $(OPTIONS)

plan: environment
	$(BIN)/python -m workflow.plan --configfile $(call quoted,CONFIG)

# Static embeddings for config/laptop.yaml.
models/wordllama: | environment
	$(BIN)/python -m scripts.static_model --output $@

# Answers any query in a browser. OPTIONS="--port 0 --systems bm25" adds options.
explore: environment
	$(BIN)/python -m cort.explore --experiment $(call quoted,CONFIG) --open $(OPTIONS)

# TARGET=results/... explains one file.
why: environment
	$(BIN)/python -m workflow.why $(TARGET) --configfile $(call quoted,CONFIG)

environment: $(VENV)/.installed

$(VENV)/.installed: requirements.lock
	$(PYTHON) -c 'import sys; sys.exit("error: found Python %d.%d, expected 3.11 or newer; set PYTHON=" % sys.version_info[:2] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	@echo 'Set-up, step 1 of 3: $(TORCH) and its dependencies, the largest download'
	$(PIP) install --no-compile $(TORCH)
	@echo 'Set-up, step 2 of 3: the other locked packages'
	$(PIP) install --no-compile --no-deps --requirement requirements.lock
	@echo 'Set-up, step 3 of 3: their bytecode, on all cores; pip would use one'
	@# Fails for files that are for other versions of Python.
	@$(BIN)/python -m compileall -qq -j 0 $(VENV)/lib || true
	touch $@

$(VENV)/.installed-dev: requirements-dev.lock $(VENV)/.installed
	$(PIP) install --no-deps --requirement requirements-dev.lock
	touch $@

# Three workers on two cores, since some tests wait; tests/conftest.py says which tests one worker runs together.
PYTEST = $(BIN)/python -m pytest -n 3 --no-loadscope-reorder --durations 20
.PHONY: test-all test-avx2 coverage durations

# Required for every change; takes minutes.
test: $(VENV)/.installed-dev
	$(PYTEST) -m "not exhaustive"

# The tests of search as on a processor without VNNI, AMX and bf16: there oneDNN's int8 products saturate.
test-avx2: $(VENV)/.installed-dev
	ONEDNN_MAX_CPU_ISA=AVX2 ATEN_CPU_CAPABILITY=avx2 $(PYTEST) tests/cort/retrieval tests/gpu/test_gpu_search.py

# With more settings, faults and kills; takes hours on two cores.
test-all: $(VENV)/.installed-dev
	$(PYTEST)

# Records in tests/durations.json which tests begin first.
durations: $(VENV)/.installed-dev
	RECORD_DURATIONS=true $(PYTEST) -m "not exhaustive"

# The share of lines that `make test` runs, including subprocesses, and the ten modules with the lowest share.
coverage: $(VENV)/.installed-dev
	$(PYTEST) -m "not exhaustive" --cov --cov-report=
	$(BIN)/coverage report --sort cover | sed -n '1,12p;$$p'

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check Snakefile workflow
	$(BIN)/python -m scripts.config_reference --check
	$(BIN)/python -m scripts.lint_workflow

# DATA=FOLDER with collection.tsv, queries.train.tsv and qrels.train.tsv also measures training; MODEL=FOLDER trains this
# model and compares encoding with sentence-transformers.
bench: environment
	$(BIN)/python -m scripts.bench.exact
	$(if $(DATA),$(BIN)/python -m scripts.bench.training --data "$(DATA)" $(if $(MODEL),--base-model "$(MODEL)"))
	$(if $(and $(DATA),$(MODEL)),$(BIN)/python -m scripts.bench.encode --data "$(DATA)" --base-model "$(MODEL)")

# Compares the GPU with the CPU (tests/gpu), then measures its speed; takes minutes. DEVICE=cpu tries it without a GPU.
gpu-check: DEVICE := $(or $(DEVICE),cuda)
gpu-check: $(VENV)/.installed-dev
	CHECK_DEVICE=$(DEVICE) $(BIN)/python -m pytest tests/gpu
	$(BIN)/python -m scripts.gpu_speed --device $(DEVICE)

# Makes files like MS MARCO's in FOLDER/data, SCALE=1/256 of the size, and runs config/full-size.yaml on them in FOLDER.
# Call again to resume; another SCALE needs another FOLDER.
full-size: environment
	test -d "$(or $(FOLDER),$(error set FOLDER=...))/data" || \
		$(BIN)/python -m scripts.full_size --folder "$(FOLDER)/data" --scale $(or $(SCALE),1)
	$(BIN)/snakemake --cores all --directory "$(FOLDER)" --configfile config/full-size.yaml

# Runs shipped experiments with small files and models, unchanged but for the source of TREC-CAR's paragraphs.
# DATA=FOLDER takes passages from samples of MS MARCO (default: ../shared/data if it exists, else made-up passages);
# CONFIGS="config/nfcorpus.yaml" chooses experiments, KILLS=0 how often each is killed, SLURM=1 uses a SLURM on this machine.
smoke-test: $(VENV)/.installed-dev
	SMOKE_DATA="$(DATA)" SMOKE_CONFIGS="$(CONFIGS)" SMOKE_KILLS="$(KILLS)" SMOKE_SLURM="$(SLURM)" \
		$(BIN)/python -m pytest -s tests/end_to_end/test_smoke.py

# All faults of a cluster, on a SLURM of this machine (Debian: slurm-wlm, munge).
slurm-test: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -n 2 --durations 5 tests/end_to_end/test_slurm_faults.py tests/end_to_end/test_slurm_outages.py

# Kills and resumes builds of the tests' tiny experiment. KILLS=100 SEED=2 for more.
crash-test: $(VENV)/.installed-dev
	CRASH_KILLS="$(KILLS)" CRASH_SEED="$(SEED)" $(BIN)/python -m pytest -s tests/end_to_end/test_crashes.py -k beginning

$(VENV)/.installed-docs: requirements-docs.lock $(VENV)/.installed-dev
	$(PIP) install --no-deps --requirement requirements-docs.lock
	touch $@

# The documentation as a site in site/html, with all links checked; mkdocs.yml says why its files are copied.
docs: $(VENV)/.installed-docs
	rm -rf site && mkdir -p site/source
	cp -r --parents README.md CHANGELOG.md CITATION.cff LICENSE docs config profiles/slurm \
		cort/downloads/catalog.yaml tests/workflow/staleness.yaml site/source
	COLUMNS=84 $(BIN)/python -m scripts.stage_reference > site/source/docs/stages.md
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict
	@echo "file://$(abspath site/html)/index.html"

# Resolves the dependencies of pyproject.toml again, in a new environment.
lock:
	scripts/lock

# A running build needs what these delete.
.PHONY: no-build
no-build:
	@if [ -n "$$(find .snakemake/locks -type f 2> /dev/null)" ]; then \
		echo "error: .snakemake/locks: found the locks of a build, expected none;" \
			"wait for its end, or if it was killed, call $(BIN)/snakemake --unlock" >&2; exit 1; \
	fi

# Deletes what causes no rerun, also what no config of a dataset makes any more; CONFIG= adds a config of another folder.
clean-cache: no-build environment
	$(BIN)/python -m scripts.clean $(call quoted,CONFIG)

# Deletes all results, also those in a folder that `results` links to. FORCE=1 deletes write-protected files, too: models
# that may have taken days.
RESULTS = results logs benchmarks
clean: no-build
	@protected=$$(find -H $(RESULTS) -type f ! -perm -u=w 2> /dev/null); \
	if [ -z "$(FORCE)" ] && [ -n "$$protected" ]; then \
		folders=$$(echo "$$protected" | cut -d/ -f1-4 | sort -u | paste -sd' '); \
		echo "error: found $$(echo "$$protected" | wc -l) write-protected files in $$folders, expected none;" \
			"copy what you need, then call make clean FORCE=1" >&2; exit 1; \
	fi
	@for folder in $(RESULTS) .snakemake; do \
		if [ -L $$folder ]; then chmod -R u+w $$folder/ 2> /dev/null; find $$folder/ -mindepth 1 -delete; \
		elif [ -d $$folder ]; then chmod -R u+w $$folder 2> /dev/null; rm -rf $$folder; fi || exit; \
	done

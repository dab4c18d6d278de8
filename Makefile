# The project's commands; each makes .venv first if it is missing or out of date.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CORES ?= 2
SHELL := bash
.SHELLFLAGS := -o pipefail -c
# Of what Snakemake says of every job, one line that counts the steps.
STEPS := /steps \(/ {printf "\r%s ", $$0; fflush(); next} /^(\[|Select jobs|Execute|Finished|$$)/ {next} {print}
# Tests of a group share what is expensive to make, so that one worker makes it.
WORKERS := --numprocesses $(CORES) --dist loadgroup --no-loadscope-reorder --quiet
export PIP_DISABLE_PIP_VERSION_CHECK = 1

.PHONY: install demo test soak served sweep lint docs docs-site dist release bench clean

install: $(INSTALLED)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "AdaFuse needs Python 3.11 or newer, this is %d.%d; say make PYTHON=python3.11" % sys.version_info[:2])'
	@echo "Installing into $(VENV): two to six minutes."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[workflow,lm-eval,serve,docs,dev]'
	@touch $@

demo: install  ## decode, score and compare on the toy world
	@echo "Ten runs on four toy benchmarks: two to five minutes on two cores."
	@$(BIN)/snakemake --configfile config/toy.yaml --cores $(CORES) --quiet rules host 2>&1 | awk '$(STEPS)'
	@$(BIN)/adafuse step summary config/toy.yaml
	@echo "Open results/report/index.html in a browser, or follow one text here:"
	@echo "  $(BIN)/adafuse show results/traces/toy_qa/adafuse.parquet"

test: install  ## the quick tests: 7 to 15 minutes on two cores
	$(BIN)/python -m pytest -m "not soak and not served and not sweep" $(WORKERS)

soak: install  ## the long tests: Slurm, series of kills, the toy workflow, large pages, every setting
	$(BIN)/python -m pytest -m soak --durations 20 $(WORKERS)

served: install  ## models on two vLLM servers, ADAFUSE_SERVED="FOLDER=URL FOLDER=URL", against this process: hours
	$(BIN)/python -m pytest -m served -rs --junit-xml results/served.xml tests/served; status=$$?; \
	  grep -o '<property [^>]*>' results/served.xml; exit $$status

sweep: install  ## every method on every kind of network, against the reference engine: an hour
	$(BIN)/python -m pytest -m sweep $(WORKERS)

lint: install  ## style, types, and the workflow's own checks
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/snakefmt --check --compact-diff Snakefile workflow
	$(BIN)/snakemake --lint

docs: install  ## the pages, the schema and the figure that are made from the code
	$(BIN)/python -m tools.docs

docs-site: install  ## all pages and the Python reference as a searchable site, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "To search it too: $(BIN)/python -m http.server --directory site"

dist: install  ## the source distribution and the wheel, as a package index would check them
	rm -rf dist
	PIP_CONSTRAINT=constraints.txt $(BIN)/python -m build
	$(BIN)/python -m twine check --strict dist/*

# From here, adafuse/toy would be the clone's; from dist/ it is that of the wheel.
EMPTY := dist/empty-environment
release: dist  ## and try the wheel in an empty environment: some minutes, most of them for torch
	$(PYTHON) -m venv $(EMPTY)
	$(EMPTY)/bin/python -m pip install --quiet --constraint constraints.txt dist/*.whl
	cd dist && empty-environment/bin/python -I -c 'import adafuse; adafuse.Ensemble'
	cd dist && empty-environment/bin/adafuse --version
	cd dist && empty-environment/bin/adafuse generate --prompt "Question: Which city is the capital of Rustan?"$$'\n'"Answer:" \
	  --model adafuse/toy/models/mistral --model adafuse/toy/models/llama --device cpu --stop $$'\n'
	rm -rf $(EMPTY)

bench: install  ## what fused decoding costs here, in terms of the models alone
	$(BIN)/adafuse bench

clean:  ## everything that was installed or computed
	rm -rf $(VENV) .snakemake dist site results/*/

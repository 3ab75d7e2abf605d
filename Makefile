# Two commands matter: `make book` builds the book, `make test` checks everything.
# Both set up their own virtual environment in .venv, once.

VENV   := .venv
PY     := $(VENV)/bin/python
STAMP  := $(VENV)/installed
PEERS  := .peers
FLOWER := .flower
OTTER  := .otter
JOBS   ?= 2
HTML   := _build/html

# The stamp holds the folder where .venv was made: an environment does not survive moving.
$(shell [ "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" ] || rm -f $(STAMP))

# Small tensors: one thread per process, several processes (tests run in parallel).
export OMP_NUM_THREADS = 1
export MKL_NUM_THREADS = 1

FAST   := not notebook and not browser and not book
WHEEL  := _build/wheel
TRUST  := --NotebookNotary.db_file=$(CURDIR)/_build/trust.db --NotebookNotary.secret_file=$(CURDIR)/_build/trust.key
NBVAL  := --nbval-lax --nbval-kernel-name wheel --nbval-sanitize-with tests/nbval_sanitize.cfg \
          --nbval-cell-timeout 300

.PHONY: help book test test-fast test-data wheel lint lab bench bench-peers clean distclean setup lock browser \
        vendor chapters instructor slides lab-full pdf guide flower flower-demo otter labs grade
.DEFAULT_GOAL := help

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-11s %s\n", $$1, $$2 }' Makefile

setup: $(STAMP) ## create .venv and install (the other targets do this by themselves)

$(STAMP): requirements.txt constraints.txt hashes.txt pyproject.toml scripts/setup.sh
	@sh scripts/setup.sh $(VENV)
	@echo "$(CURDIR)" > $@

lock: $(STAMP) ## choose all versions anew from requirements.txt: constraints.txt and hashes.txt
	@$(PY) scripts/lock.py

book: $(STAMP) vendor ## build the book strictly into _build/html and print the page to open
	@echo "Building the book"
	@$(VENV)/bin/jupyter-book build . -n -W --keep-going -q >/dev/null || { \
	  rm -rf _build/.doctrees; \
	  echo "The book did not build cleanly (see above); a strict build accepts no warning." >&2; exit 1; }
	@$(PY) -c "import pathlib; print('Open', pathlib.Path('$(HTML)/index.html').resolve().as_uri())"

# The book is built again afterwards, because its first page links to the PDF only where there is one.
pdf: book ## print the whole book to _build/privfl_lite.pdf (needs Chromium; a few minutes), and link to it
	@echo "Printing the book"
	@$(PY) scripts/print_book.py $(PAGES)
	@$(MAKE) --no-print-directory book

guide: book ## print the instructor guide to _build/instructor-guide.pdf (needs Chromium)
	@$(PY) scripts/print_book.py instructors ethics --to _build/instructor-guide.pdf

# Lint and tests all run, whatever fails first; pytest's summary is the last line.
test: $(STAMP) vendor browser wheel flower otter ## run everything: lint, types, tests, notebooks, strict book, links, browser
	@status=0; \
	$(PY) -m ruff check . || status=1; \
	$(PY) -m ruff format --check . || status=1; \
	$(PY) -m mypy || status=1; \
	JUPYTER_PATH=$(WHEEL) $(PY) -m pytest tests $(WHEEL)/notebooks $(NBVAL) \
	  -n $(JOBS) --dist loadfile -q -rs || status=1; \
	exit $$status

test-data: $(STAMP) ## fetch CIFAR-10, all of MNIST and LPIPS weights, and run everything with them
	@for asset in cifar10 mnist lpips; do $(VENV)/bin/privfl fetch $$asset || exit 1; done
	@PRIVFL_TEST_DATA="$$($(PY) -c 'from privfl_lite import assets; print(assets.cache())')" \
	  $(MAKE) test

test-fast: $(STAMP) ## run lint and unit tests only (no notebooks, book build or browser)
	@status=0; \
	$(PY) -m ruff check . || status=1; \
	$(PY) -m ruff format --check . || status=1; \
	$(PY) -m pytest tests -m "$(FAST)" -n $(JOBS) -q -rs || status=1; \
	exit $$status

lint: $(STAMP) ## sort imports and format all Python
	@$(PY) -m ruff check --fix . && $(PY) -m ruff format .

chapters: $(STAMP) ## make the notebooks from book/src (one: CHAPTER=dcs2; RERUN=--rerun runs all cells)
	@PYTHONPATH=scripts $(PY) -m editions $(CHAPTER) $(RERUN)

instructor: $(STAMP) ## make notebooks with solutions and rubrics, and an exam (SECRET=…), in _build/instructor
	@PYTHONPATH=scripts $(PY) -m editions $(CHAPTER) --edition instructor
	@PRIVFL_CLASS_SECRET="$(SECRET)" PYTHONPATH=scripts $(PY) -m exam _build/instructor

slides: $(STAMP) ## make slides for each chapter in _build/slides (one: CHAPTER=dcs2)
	@PYTHONPATH=scripts $(PY) -m slides $(CHAPTER)

# Both editions are plain Markdown. jupyterlab-myst, which renders book/*.ipynb as far as it knows the
# directives, would leave the formulas of folded proofs as source, so it is off here.
lab: $(STAMP) ## open JupyterLab on the student edition of the chapters
	@JUPYTER_CONFIG_PATH=$(CURDIR)/scripts/lab $(PY) -m jupyterlab --notebook-dir=book/student

# JupyterLab shows stored widgets only in notebooks that are signed; the signatures stay in _build.
lab-full: $(STAMP) ## open JupyterLab on the full chapters, with outputs and folded solutions
	@echo "Making the full edition in _build/full"
	@PYTHONPATH=scripts $(PY) -m editions --edition full
	@$(VENV)/bin/jupyter trust $(TRUST) _build/full/*.ipynb >/dev/null
	@JUPYTER_CONFIG_PATH=$(CURDIR)/scripts/lab $(PY) -m jupyterlab --notebook-dir=_build/full $(TRUST)

bench: $(STAMP) ## measure speed side by side, about 10 minutes, and store it as one run in benchmarks/
	@$(or $(wildcard $(PEERS)/bin/python),$(PY)) -m benchmarks.run

bench-peers: $(STAMP) ## install breaching and Flower into .peers, so that make bench compares with them
	@$(PY) -m benchmarks.peers $(PEERS)

# Flower's pins do not go together with ours, so its tests have an environment of their own. Never fails.
flower: $(STAMP) ## install Flower into .flower, for tests of privfl_lite.flower and for flower-demo
	@[ -f $(FLOWER)/installed ] || $(PY) -m benchmarks.peers $(FLOWER) flower || \
	  echo "Flower could not be installed; its tests are skipped."

flower-demo: flower ## run Flower's simulation, then a server and two nodes with TLS and keys; one is killed
	@RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 RAY_USAGE_STATS_ENABLED=0 FLWR_TELEMETRY_ENABLED=0 \
	  FLWR_DISABLE_UPDATE_CHECK=1 PYTHONPATH=$(CURDIR) \
	  $(FLOWER)/bin/python -m pytest -q -c tests/flower/pytest.ini tests/flower/test_simulation.py
	@$(FLOWER)/bin/python scripts/flower_demo.py

# Otter's pins do not go together with ours either (wrapt). Never fails: without it labs are not tested.
otter: $(STAMP) ## install otter-grader into .otter, for labs, grade and their tests
	@[ -f $(OTTER)/installed ] || $(PY) -m benchmarks.peers $(OTTER) otter || \
	  echo "otter-grader could not be installed; labs cannot be made, and their tests are skipped."

labs: otter ## make labs in _build/labs: notebook, autograder, solution (SECRET=…; one: LAB=read-off)
	@PYTHONPATH=$(CURDIR):$(CURDIR)/scripts PRIVFL_CLASS_SECRET="$(or $(SECRET),$(PRIVFL_CLASS_SECRET))" \
	  $(OTTER)/bin/python -m labs $(LAB)

grade: otter ## grade a folder of handed-in labs: make grade FOLDER=handed-in LAB=read-off CSV=grades.csv
	@PYTHONPATH=$(CURDIR) $(OTTER)/bin/python -m privfl_lite.cli grade $(FOLDER) --lab $(LAB) \
	  --csv $(or $(CSV),grades.csv)

clean: ## remove everything that was built (keeps .venv and the data cache)
	rm -rf _build .pytest_cache .ruff_cache .mypy_cache
	find . -name __pycache__ -not -path './$(VENV)/*' -not -path './$(PEERS)/*' -not -path './$(FLOWER)/*' \
	  -not -path './$(OTTER)/*' -prune -exec rm -rf {} +

distclean: clean ## remove .venv, .peers, .flower, .otter and book/_vendor as well
	rm -rf $(VENV) $(PEERS) $(FLOWER) $(OTTER) *.egg-info book/_vendor

# The package as a wheel, installed, and each notebook alone in a folder: notebooks are run there.
wheel: $(STAMP)
	@$(PY) scripts/wheel.py

# Browser tests use any Chromium; as root on Debian we try to install one. Never fails.
browser: $(STAMP)
	@sh scripts/browser.sh $(PY)

# Scripts for reading offline, with npm where it is at hand; else the pages use a CDN. Never fails.
vendor: $(STAMP)
	@$(PY) scripts/vendor.py

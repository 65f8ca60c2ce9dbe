# SPDX-License-Identifier: MIT
# A short way to scripts/setup.sh and CMake. `make help` lists the targets.
#
#   make CMAKE_FLAGS=-DCMAKE_BUILD_TYPE=Debug   any CMake option
#   make CMAKE_PREFIX_PATH=/opt/llama           your own ggml and libllama
#   make test CTEST_FLAGS="-L unit"             some of the tests
#   make test SERVER=1                          llama.cpp's server over the backend and the Python package, too (some minutes more)
#   make bridge LLAMA=/opt/llama LLAMA_SOURCE=/src/llama.cpp   the backend for that ggml
#   make install PREFIX=/opt/winnow DESTDIR=/tmp/package
BUILD       ?= build
CMAKE_FLAGS ?=
CTEST_FLAGS ?=
JOBS        ?= $(shell nproc)
TEST_JOBS   ?= $(shell expr $(JOBS) + 1) # some tests wait: for a signal, a browser, a program that hangs
PREFIX      ?= /usr/local
DESTDIR     ?=
MAKEFLAGS   += --no-print-directory
ifdef CMAKE_PREFIX_PATH
export CMAKE_PREFIX_PATH
endif
# $(call whole,PATH): the path from the root, as a word of the shell. make's own abspath would take a path with blanks for several.
whole = "$$(realpath -ms -- "$(1)")"

.PHONY: all setup configure install uninstall demo test test-ready test-libraries test-files test-run peers bridge server deb wheel vulkan docs clean help

all: ## build build/winnow, after installing what that needs
	scripts/setup.sh packages llama source
	$(MAKE) configure
	cmake --build "$(BUILD)" --target winnow winnow_bridge -j $(JOBS)

setup: ## install everything: packages, ggml, the default model, what the tests need
	scripts/setup.sh

configure:
	cmake -S . -B "$(BUILD)" $(CMAKE_FLAGS)

demo: all ## compress a long document and answer a question from it
	scripts/setup.sh model
	scripts/demo.sh "$(BUILD)/winnow"

test: ## build everything and run all tests
	@echo "make test: on two cores about 2 minutes to build and 6 to run all tests;" \
	    "the first time up to 10 more for packages, ggml and models"
	$(MAKE) test-ready
	$(MAKE) test-run

# What `make test` does, in two steps, between which .ci/run does something else. Models and packages of Python are fetched while
# compilers work.
test-ready:
	$(MAKE) test-libraries
	$(MAKE) configure
	@$(MAKE) test-files & files=$$!; cmake --build "$(BUILD)" -j $(JOBS); built=$$?; wait $$files && exit $$built

test-libraries:
	scripts/setup.sh packages llama source
	$(if $(SERVER),scripts/setup.sh server || echo "make test: goes on without llama.cpp's server" >&2)

test-files:
	$(MAKE) setup
	$(if $(SERVER),scripts/setup.sh clients || echo "make test: goes on without the server's clients" >&2)
	$(if $(SERVER),scripts/setup.sh chains || echo "make test: goes on without LangChain and LlamaIndex" >&2)
	$(if $(SERVER),scripts/setup.sh wheel || echo "make test: goes on without the Python package" >&2)

test-run:
	ctest --test-dir "$(BUILD)" -j $(TEST_JOBS) --output-on-failure $(CTEST_FLAGS)

peers: ## build a llama.cpp for this CPU, which build/winnow bench then runs beside itself
	scripts/setup.sh packages peers

bridge: ## build the backend, libggml-winnow.so, for the ggml installed in LLAMA; LLAMA_SOURCE has its sources
	@[ -n "$(LLAMA)" ] || { echo "make bridge LLAMA=PREFIX LLAMA_SOURCE=FOLDER" >&2; exit 2; }
	CMAKE_PREFIX_PATH=$(call whole,$(LLAMA)) cmake -S . -B "$(BUILD)-bridge" -DWNW_TESTS=OFF -DWNW_BRIDGE=ON \
	    -DWNW_LLAMA_SOURCE_DIR=$(call whole,$(or $(LLAMA_SOURCE),$(LLAMA)/src)) $(CMAKE_FLAGS)
	cmake --build "$(BUILD)-bridge" --target winnow_bridge -j $(JOBS)
	@realpath -ms -- "$(BUILD)-bridge/libggml-winnow.so"

server: ## build build/winnow-llama-server, which `winnow serve` starts, after compiling llama.cpp's server
	scripts/setup.sh packages llama source server
	$(MAKE) configure
	cmake --build "$(BUILD)" --target winnow winnow_server -j $(JOBS)

install: all ## install the command, the library and its headers into PREFIX
	cmake --build "$(BUILD)" --target winnow_shared -j $(JOBS)
	DESTDIR=$(if $(DESTDIR),$(call whole,$(DESTDIR))) cmake --install "$(BUILD)" --prefix $(call whole,$(PREFIX))

deb: ## make Debian packages in build/deb: winnow, libwinnow0, libwinnow-dev
	scripts/setup.sh packages llama source packaging
	scripts/setup.sh server || echo "make deb: goes on without llama.cpp's server" >&2
	scripts/deb.sh "$(BUILD)/deb"

wheel: ## make the Python package in dist/
	scripts/setup.sh packages llama source wheel
	scripts/setup.sh server || echo "make wheel: goes on without llama.cpp's server" >&2
	rm -rf "$(BUILD)/wheel-raw"
	tools=$${WINNOW_CACHE:-$$HOME/.cache/winnow}/wheel/venv/bin && \
	    CMAKE_BUILD_PARALLEL_LEVEL=$(JOBS) "$$tools/pip" wheel . --no-deps --no-build-isolation --disable-pip-version-check -w "$(BUILD)/wheel-raw" && \
	    "$$tools/python" scripts/wheel.py "$(BUILD)"/wheel-raw/winnow-*.whl dist

vulkan: ## build the Vulkan module of ggml, so that `--devices vulkan0` computes on a GPU with a Vulkan driver
	scripts/setup.sh vulkan
	mkdir -p "$(BUILD)"
	cp "$${WINNOW_CACHE:-$$HOME/.cache/winnow}/vulkan/libggml-vulkan.so" "$(BUILD)/"

uninstall: ## remove what the last install from here put there
	DESTDIR="$(DESTDIR)" scripts/uninstall.sh "$(BUILD)/install_manifest.txt"

# Costs are measured apart, half an hour a round: build/winnow bench methods --lengths 8192 --csv docs/reference/methods-cost.csv
docs: all ## write docs/reference/methods.md, and the picture of its last table, from the descriptors
	"$(BUILD)/winnow" methods --markdown $(if $(wildcard docs/reference/methods-cost.csv),--costs docs/reference/methods-cost.csv) \
	    >docs/reference/methods.md.new
	mv docs/reference/methods.md.new docs/reference/methods.md
	scripts/choice_tree.py <docs/reference/methods.md

clean: ## remove the build folders (the cache folder stays)
	rm -rf build build-* dist

help: ## this list
	@sed -n 's/^\([a-z]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 10

# verl in C. `make help` lists the targets; choices go to config.mk or the command line.
-include config.mk

BUILD  ?= build
CC     ?= cc
prefix ?= /usr/local
MPI    ?= auto
HTTP   ?= auto
CUDA   ?= auto
DEV    ?= 0
SAN    ?= 0
V      ?= 0
VERSION := $(shell cat VERSION)

# Rules of exactness: no contraction, no fast-math; multiply-add is written fmaf() or an intrinsic.
CFLAGS_RULES := -std=c17 -D_GNU_SOURCE -ffp-contract=off -fno-fast-math
WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wvla
OPT  := -O2 -g
ifeq ($(DEV),1)
  WARN += -Werror
endif
ifeq ($(SAN),1)
  OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined -fno-sanitize-recover=undefined
  LDSAN := -fsanitize=address,undefined
  override MPI := 0
endif
# Fuzzing by clang's libFuzzer; tests/fuzz/run NAME SECONDS sets it.
ifeq ($(LIBFUZZER),1)
  OPT := -O1 -g -fno-omit-frame-pointer -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined -DVL_FUZZING
  LDSAN := -fsanitize=address,undefined
  FUZZ_FLAGS := -DVL_LIBFUZZER -fsanitize=fuzzer
  override MPI := 0
endif

# Parts found on this machine. A requested part that is missing is an error, a missing optional one is not.
MPI_LIBS_FOUND := $(shell pkg-config --libs mpich 2>/dev/null)
ifeq ($(MPI),auto)
  override MPI := $(if $(MPI_LIBS_FOUND),1,0)
endif
ifeq ($(MPI),1)
  ifeq ($(MPI_LIBS_FOUND),)
    $(error MPI=1 but pkg-config finds no mpich; run scripts/bootstrap or use MPI=0)
  endif
  MPI_CFLAGS := $(shell pkg-config --cflags mpich)
endif

CURL_LIBS_FOUND := $(shell pkg-config --libs libcurl 2>/dev/null)
ifeq ($(HTTP),auto)
  override HTTP := $(if $(CURL_LIBS_FOUND),1,0)
endif
ifeq ($(HTTP),1)
  ifeq ($(CURL_LIBS_FOUND),)
    $(error HTTP=1 but pkg-config finds no libcurl; run scripts/bootstrap or use HTTP=0)
  endif
endif

PKGS := libzstd yaml-0.1 libpcre2-8 libutf8proc libxxhash
CPPFLAGS := -I. -DVL_VERSION='"$(VERSION)"' $(shell pkg-config --cflags $(PKGS) 2>/dev/null)
LDLIBS := $(shell pkg-config --libs $(PKGS) 2>/dev/null) -ljq -lonig -ldl -lm -lpthread
CFLAGS_ALL = $(CFLAGS_RULES) $(OPT) $(WARN) -fopenmp $(CFLAGS)
# gcc's OpenMP is linked statically where it can be: our constructor then runs before it reads its
# environment and shortens its spinning (kernels/cpu/threads.c).
GOMP_A := $(if $(findstring clang,$(shell $(CC) --version 2>/dev/null)),,$(filter /%,$(shell $(CC) -print-file-name=libgomp.a)))
LDFLAGS_ALL = $(LDSAN) $(if $(GOMP_A),,-fopenmp) $(LDFLAGS)
LDLIBS += $(GOMP_A) -ldl -lpthread

Q := $(if $(filter 1,$(V)),,@)
say = $(if $(filter 1,$(V)),,@printf '  %-5s %s\n' $(1) $(2);)

LIB_SRC  := $(filter-out libverl/comm/comm_mpi.c libverl/base/http_curl.c,$(wildcard libverl/*/*.c formats/*.c kernels/cpu/*.c))
# What libverl_mpi.so is made of; it exports vl_mpi_init alone.
MPI_SRC  := $(addprefix libverl/,comm/comm_mpi.c comm/node.c base/cpus.c base/cgroup.c base/err.c base/mem.c)
MPI_SO   := $(if $(filter 1,$(MPI)),$(BUILD)/lib/libverl_mpi.so)
# What libverl_http.so is made of; it exports vl_http_curl alone.
HTTP_SRC := $(addprefix libverl/base/,http_curl.c err.c mem.c)
HTTP_SO  := $(if $(filter 1,$(HTTP)),$(BUILD)/lib/libverl_http.so)
# The caller of verl's Python reward functions, run by the user's python3.
PY_LIB   := $(BUILD)/lib/custom_reward.py
PLUGINS  := $(MPI_SO) $(HTTP_SO) $(PY_LIB)
CMD_SRC  := $(wildcard cmd/verl-*.c)
UNIT_SRC := $(wildcard tests/unit/test_*.c)
FUZZ_SRC := $(wildcard tests/fuzz/fuzz_*.c)
MPIT_SRC := $(wildcard tests/mpi/*.c)
HELPER   := $(addprefix $(BUILD)/tests/,httpd streamer mkgguf)
LIB_OBJ  := $(LIB_SRC:%.c=$(BUILD)/%.o)
LIB      := $(BUILD)/libverl.a
BIN      := $(CMD_SRC:cmd/%.c=$(BUILD)/bin/%)
UNIT     := $(UNIT_SRC:tests/unit/%.c=$(BUILD)/tests/%)
MPIT     := $(MPIT_SRC:tests/mpi/%.c=$(BUILD)/tests/mpi/%)
BENCH    := $(patsubst tests/bench/%.c,$(BUILD)/bench/%,$(wildcard tests/bench/*.c))
FUZZ     := $(FUZZ_SRC:tests/fuzz/%.c=$(BUILD)/fuzz/%)
TESTS    := $(sort $(wildcard tests/t[0-9]*.sh))

.PHONY: all bench check check-unit check-san check-clang check-exact check-isa check-learning demo demo-long format format-check fuzz help install clean bootstrap parts
.DEFAULT_GOAL := all

all: parts $(BIN) $(PLUGINS) ## build every program into build/bin

parts:
	@printf '  mpi   %s\n' '$(if $(filter 1,$(MPI)),yes ($(firstword $(shell pkg-config --modversion mpich 2>/dev/null))),no: programs run as one rank)'
	@printf '  http  %s\n' '$(if $(filter 1,$(HTTP)),yes (libcurl $(shell pkg-config --modversion libcurl 2>/dev/null)),no: no judge and no sandbox by URL)'
	@printf '  cuda  %s\n' '$(if $(wildcard kernels/cuda/*.cu),$(CUDA),no plugin in this tree)'

# Only kernel files may use wider instructions; which one runs is chosen at run time.
ifneq ($(filter x86_64%,$(shell $(CC) -dumpmachine)),)
  $(BUILD)/kernels/cpu/%_fma.o: KFLAGS := -mfma
  $(BUILD)/kernels/cpu/%_avx2.o: KFLAGS := -mavx2 -mfma
  $(BUILD)/kernels/cpu/%_avx512.o: KFLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mprefer-vector-width=512
  $(BUILD)/kernels/cpu/%_avx512bf16.o: KFLAGS := -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx2 -mfma -mprefer-vector-width=512
  $(BUILD)/kernels/cpu/%_amx.o: KFLAGS := -mamx-tile -mamx-bf16 -mamx-int8 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512bf16 -mavx2 -mfma -mprefer-vector-width=512
endif
$(BUILD)/libverl/base/version.o: KFLAGS = -DVL_BUILD_FLAGS='"$(strip $(CFLAGS_RULES) $(OPT) $(CFLAGS))"' \
    -DVL_MPI_VERSION='"$(if $(filter 1,$(MPI)),mpich $(shell pkg-config --modversion mpich),no)"' \
    -DVL_CURL_VERSION='"$(if $(filter 1,$(HTTP)),$(shell pkg-config --modversion libcurl),no)"' \
    -DVL_JQ_VERSION='"$(patsubst jq-%,%,$(shell jq --version 2>/dev/null))"'

# Which program has which option, for errors: what the man pages name, which tests hold against --help.
OPTION_ROWS := $(BUILD)/option_rows.h
$(OPTION_ROWS): $(filter-out man/verl-mpi%,$(CMD_SRC:cmd/%.c=man/%.1))
	@mkdir -p $(@D)
	$(call say,GEN,$@)awk '/^\.It / { p = FILENAME; gsub(/.*\/|\.1$$/, "", p); for (i = 2; i < NF; i++) \
	    if ($$i == "Fl" && $$(i + 1) ~ /^-./) printf "{ \"%s\", \"%s\" },\n", substr($$(i + 1), 2), p }' $^ | LC_ALL=C sort -u >$@
$(BUILD)/libverl/base/unknown.o: KFLAGS = -DVL_OPTION_ROWS='"$(OPTION_ROWS)"'
$(BUILD)/libverl/base/unknown.o: $(OPTION_ROWS)

# Kernels are inlined many times over: with every check of UBSan beside ASan's one file takes a minute.
ifeq ($(SAN),1)
  $(BUILD)/kernels/cpu/%.o: KSAN := -fno-sanitize=bounds,alignment,null,object-size,pointer-overflow
endif

$(BUILD)/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(KFLAGS) $(KSAN) -MMD -MP -c -o $@ $<

$(BUILD)/pic/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)$(CC) $(CPPFLAGS) $(MPI_CFLAGS) $(CFLAGS_ALL) -fPIC -fvisibility=hidden -MMD -MP -c -o $@ $<

$(BUILD)/lib/libverl_mpi.so: $(MPI_SRC:%.c=$(BUILD)/pic/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared $(LDFLAGS) -o $@ $^ $(MPI_LIBS_FOUND)

$(BUILD)/lib/libverl_http.so: $(HTTP_SRC:%.c=$(BUILD)/pic/%.o)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) -shared $(LDSAN) $(LDFLAGS) -o $@ $^ $(CURL_LIBS_FOUND) -lm

$(BUILD)/lib/%.py: libverl/reward/%.py
	@mkdir -p $(@D)
	$(call say,CP,$@)install -m 644 $< $@

$(LIB): $(LIB_OBJ)
	@rm -f $@
	$(call say,AR,$@)ar rcs $@ $^

$(BUILD)/bin/%: $(BUILD)/cmd/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/tests/%: $(BUILD)/tests/unit/%.o $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(LDFLAGS_ALL) -o $@ $< $(LIB) -lcmocka $(LDLIBS)

# What tests talk to, and what makes their files.
$(HELPER): $(BUILD)/tests/%: tests/%.c $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/tests/mpi/%: tests/mpi/%.c $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/fuzz/%: tests/fuzz/%.c $(LIB)
	@mkdir -p $(@D)
	$(call say,FUZZ,$@)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) $(FUZZ_FLAGS) -o $@ $< $(LIB) $(LDLIBS)

$(BUILD)/bench/%: tests/bench/%.c $(LIB)
	@mkdir -p $(@D)
	$(call say,LD,$@)$(CC) $(CPPFLAGS) $(CFLAGS_ALL) $(LDFLAGS_ALL) -o $@ $< $(LIB) $(LDLIBS)

bench: $(BENCH) $(HELPER) $(BUILD)/bin/verl-model ## speed beside PyTorch and llama.cpp (ARGS=--help), of tokenizers (ROWS=)
	@if [ -n "$(ROWS)" ]; then tests/bench/tok_vs_hf.py $(ROWS) $(TOKENIZERS); \
	else BUILD='$(BUILD)' tests/bench/peers $(ARGS); fi

bootstrap: ## install the packages the build needs (apt)
	scripts/bootstrap

check: ## install what is missing, build, run every test
	scripts/check

check-unit: $(UNIT) $(PLUGINS) $(HELPER) ## the C unit tests alone
	CMOCKA_MESSAGE_OUTPUT=TAP prove -e '' -j2 $(UNIT)

check-san: ## the unit tests under ASan and UBSan
	$(MAKE) --no-print-directory SAN=1 BUILD=$(BUILD)-san check-unit

check-clang: ## build with clang and -Werror
	$(MAKE) --no-print-directory CC=clang DEV=1 BUILD=$(BUILD)-clang all unit-binaries

check-isa: all unit-binaries ## every test with forced AVX2, then forced scalar kernels
	for isa in avx2 scalar; do \
		VL_ISA=$$isa CMOCKA_MESSAGE_OUTPUT=TAP prove -e '' -j2 $(UNIT) tests/t[0-9]*.sh || exit 1; done

unit-binaries: $(UNIT) $(FUZZ) $(MPIT) $(BENCH) $(PLUGINS) $(HELPER)

demo: ## install what is missing, build, train a small model, show the curve
	scripts/demo

demo-long: all ## the demo's checks for three seeds, and with forced AVX2 and scalar kernels
	for s in 1 2 3; do VERL_DEMO_BUILT=1 scripts/demo -t -s $$s -r run/demo-seed$$s || exit 1; done
	for isa in avx2 scalar; do VL_ISA=$$isa VERL_DEMO_BUILT=1 scripts/demo -t -r run/demo-$$isa || exit 1; done

check-learning: all ## every algorithm from the demo's start to a mean reward of 0.8 (minutes)
	scripts/check-learning

check-exact: all ## bit-exactness of a model in the shape of Qwen2.5-0.5B (half an hour a type, 14 GB)
	scripts/check-exact $(TYPES)

fuzz: $(FUZZ) ## build the fuzz targets (tests/fuzz/run NAME SECONDS makes new inputs)

FORMAT_FILES = $(shell git ls-files '*.c' '*.h' 2>/dev/null)
format: ## reformat the sources
	clang-format -i $(FORMAT_FILES)
format-check: ## fail if a source is not formatted
	@clang-format --dry-run -Werror $(FORMAT_FILES)

install: all ## install programs, scripts and man pages under prefix (DESTDIR honoured)
	install -d $(DESTDIR)$(prefix)/bin $(DESTDIR)$(prefix)/share/man/man1 $(DESTDIR)$(prefix)/share/man/man5 $(DESTDIR)$(prefix)/share/man/man7
	install $(BIN) scripts/verl-mpi scripts/parquet2jsonl $(DESTDIR)$(prefix)/bin
	$(if $(strip $(PLUGINS)),install -d $(DESTDIR)$(prefix)/lib/verl && install -m 644 $(PLUGINS) $(DESTDIR)$(prefix)/lib/verl)
	install -m 644 man/*.1 $(DESTDIR)$(prefix)/share/man/man1
	install -m 644 man/*.5 $(DESTDIR)$(prefix)/share/man/man5
	install -m 644 man/*.7 $(DESTDIR)$(prefix)/share/man/man7

clean: ## remove build directories
	rm -rf build build-*

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | sort | awk -F'\t' '{printf "  %-14s %s\n", $$1, $$2}'
	@echo '  options: MPI=0|1 HTTP=0|1 CUDA=0|1 DEV=1 (-Werror) SAN=1 (sanitizers) V=1 BUILD=dir CC=clang'

-include $(LIB_OBJ:.o=.d) $(MPI_SRC:%.c=$(BUILD)/pic/%.d) $(HTTP_SRC:%.c=$(BUILD)/pic/%.d) $(CMD_SRC:%.c=$(BUILD)/%.d) $(UNIT_SRC:%.c=$(BUILD)/%.d)
.SECONDARY:

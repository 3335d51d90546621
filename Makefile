# The one entry point for everything that is not `cargo build` and `cargo test`.

FUZZ_TARGETS = survey checkpoint part fsstats plan bench record segment descriptor superblock table catalog published volume replica archive strace columnar trace_readers ext xfs btrfs watch_events fuse listed
FUZZ_SECONDS ?= 60
# Of libFuzzer: 0 takes another each time.
FUZZ_SEED ?= 0
# Arguments of `cargo test` for `test-twice`: `--test it -- bench` runs some only.
TESTS ?=
# Crashes, and openings in scenarios, that each process of `torture` tries, and how many processes there are.
CRASH_POINTS ?= 5000000
JOBS ?= $(shell nproc)
# Random changes of a watched file system, and their seed.
WATCH_CHANGES ?= 1000000
WATCH_SEED ?= 1
# Random operations of each of three workers on a mounted store, and the seed of the first.
MOUNT_OPERATIONS ?= 1000000
MOUNT_SEED ?= 1
# Kills of each kind in `test-bucket`.
BUCKET_KILLS ?= 50
# Entries of the indexes that `bench-index-scale` makes.
INDEX_ENTRIES ?= 1000000 10000000
# Coverage for libFuzzer with the stable compiler: no sanitizer, but debug assertions and overflow checks.
FUZZ_RUSTFLAGS = -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
	-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
	-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1
HOST = $(shell rustc -vV | sed -n 's/^host: //p')

.PHONY: quick hooks check test test-twice test-pjdfs test-mount test-mount-proof test-bucket test-python test-python-others test-page fuzz-build fuzz torture torture-binary torture-watch bench-survey bench-plan bench-trace bench-generate bench-mrc bench-index bench-index-scale bench-store bench-mount bench-bucket bench-python bench-all man dist wheel test-dist notices

quick:            ## for whoever works on it: formatting, unit tests with few simulated crashes, layers, words, help; under 3 minutes once built
	cargo fmt --all --check
	GRANULO_CRASH_POINTS=300 GRANULO_BUCKETS=300 cargo test --lib -q
	cargo test --test it -q -- circles layers tidy cli

hooks:            ## let git check commit messages in this clone
	git config core.hooksPath .githooks

check:            ## formatting and lints, as CI does
	cargo fmt --all --check
	cargo clippy --workspace -- -D warnings
	cargo clippy --workspace --all-targets -- -D warnings

test:             ## every test that needs no browser
	cargo test

test-twice:       ## the tests twice at once, each with a tree and a build of its own; needs root
	tests/twice.sh $(TESTS)

test-pjdfs:       ## the cases of pjdfstest that this machine's ext4 passes, on a mounted store (needs root, /dev/fuse and pjdfstest 0.2.2)
	cargo build --release
	tests/pjdfs.sh ./target/release/granulo

test-mount-proof: ## fsx, fio, stress-ng and everyday programs on a mounted store (needs root, /dev/fuse, fsx 0.3.2 and the programs)
	cargo build --release
	tests/mount-proof.sh ./target/release/granulo

test-mount:       ## random operations on a mounted store and on the file system beside it: MOUNT_OPERATIONS of each worker, from MOUNT_SEED; and kills
	GRANULO_MOUNT_OPERATIONS=$(MOUNT_OPERATIONS) GRANULO_MOUNT_SEED=$(MOUNT_SEED) GRANULO_MOUNT_KILLS=200 GRANULO_REQUIRE_ALL=1 \
	  cargo test --release --test it -- mount_random mount_kill --nocapture

test-bucket:      ## stores in buckets of a real Ceph and a real MinIO, which are started here, with BUCKET_KILLS kills of each kind; needs the packages in docs/TESTING.md
	tests/servers/minio.sh build
	cargo test --locked -p granulo-bucket
	GRANULO_REQUIRE_ALL=1 GRANULO_BUCKET_KILLS=$(BUCKET_KILLS) cargo test --release --features bucket --test bucket -- --nocapture

test-python:      ## the Python package, built and installed in target/python; with torch if python3 has it
	python3 -m venv --system-site-packages target/python
	target/python/bin/pip install --quiet './crates/python[test]'
	target/python/bin/python -m pytest crates/python

test-python-others: ## pandas, Hugging Face datasets, zarr and Dask on a store, through fsspec; installs them from PyPI
	python3 -m venv target/python-others
	target/python-others/bin/pip install --quiet './crates/python[fsspec,arrow]' pandas datasets zarr 'dask[dataframe]'
	target/python-others/bin/python -W ignore crates/python/tests/others.py

test-page:        ## the pages in headless Chromium (needs node and chromium)
	cargo build --release
	rm -rf target/page && mkdir -p target/page
	./target/release/granulo survey src --report target/page/src.html -o target/page/src.json > target/page/src.txt
	./target/release/granulo plan vu-2005 --trace vu-2005 --fast 24GiB --prices tests/page/prices.toml --reads 1000000 --report target/page/plan.html > target/page/plan.txt
	tests/page/bench-pages.sh ./target/release/granulo target/page
	tests/page/use-pages.sh ./target/release/granulo target/page
	cd tests/page && npm ci --no-audit --no-fund && \
	  GRANULO_PAGE=$(CURDIR)/target/page/src.html GRANULO_PLAN_PAGE=$(CURDIR)/target/page/plan.html \
	  GRANULO_BENCH_PAGE=$$(ls $(CURDIR)/target/page/bench-*.html | paste -sd:) \
	  GRANULO_TRACE_PAGE=$$(ls $(CURDIR)/target/page/trace-*.html | paste -sd:) GRANULO_CACHE_PAGE=$(CURDIR)/target/page/cache.html \
	  GRANULO_STORE_PAGE=$(CURDIR)/target/page/store.html GRANULO_HISTORY_PAGE=$(CURDIR)/target/page/history.html \
	  GRANULO_COMPARE_PAGE=$$(ls $(CURDIR)/target/page/compare-*.html | paste -sd:) \
	  GRANULO_CHECK_PAGE=$$(ls $(CURDIR)/target/page/check-*.html | paste -sd:) \
	  GRANULO_ALLOCATE_PAGE=$(CURDIR)/target/page/allocate.html GRANULO_RESULT_PAGE=$(CURDIR)/target/page/result.html npm test

fuzz-build:       ## the fuzz targets
	RUSTFLAGS="$(FUZZ_RUSTFLAGS)" cargo build --locked --release --manifest-path fuzz/Cargo.toml --target $(HOST)

fuzz: fuzz-build  ## each fuzz target for FUZZ_SECONDS
	for target in $(FUZZ_TARGETS); do \
	  mkdir -p fuzz/corpus/$$target && \
	  ./fuzz/target/$(HOST)/release/$$target -seed=$(FUZZ_SEED) -max_total_time=$(FUZZ_SECONDS) -max_len=65536 -timeout=20 -print_final_stats=1 \
	    -artifact_prefix=fuzz/ fuzz/corpus/$$target fuzz/seeds/$$target || exit 1; \
	done

torture:          ## the store at CRASH_POINTS simulated crashes and as many openings in scenarios in each of JOBS processes, from seeds of today, and 2,000 killed writers; takes hours
	cargo test --release -p granulo-store --lib --no-run
	first=$${GRANULO_CRASH_SEED:-$$(date +%Y%m%d)0000000000}; jobs=; failed=0; \
	for job in $$(seq 0 $$(($(JOBS) - 1))); do \
	  GRANULO_CRASH_POINTS=$(CRASH_POINTS) GRANULO_CRASH_SEED=$$((first + job * 100000000)) \
	    cargo test --release -p granulo-store --lib -- --nocapture --test-threads=1 every_crash_leaves random_scenarios & \
	  jobs="$$jobs $$!"; \
	done; \
	for job in $$jobs; do wait $$job || failed=1; done; exit $$failed
	GRANULO_KILLS=2000 cargo test --release --test it store_kill -- --nocapture

torture-binary:   ## the same from outside: every system call that can fail, short ones, 5,000 recorded power failures, 2,000 flipped bytes, memory with a million objects; takes hours
	GRANULO_REQUIRE_ALL=1 GRANULO_FAULTS=all GRANULO_SHORTS=30 GRANULO_POWER_FAILURES=5000 GRANULO_FLIPS=2000 GRANULO_OBJECTS=1000000 \
	  cargo test --release --test it -- --nocapture store_faults store_short store_power store_flips store_memory

torture-watch:    ## WATCH_CHANGES random changes under granulo watch, compared with surveys ten times; needs root and some minutes
	GRANULO_REQUIRE_ALL=1 GRANULO_WATCH_CHANGES=$(WATCH_CHANGES) GRANULO_WATCH_SEED=$(WATCH_SEED) \
	  cargo test --release --test it -- --nocapture --ignored a_million_changes

bench-survey:     ## granulo, the floor and its peers on a million files; needs root and some patience
	cargo build --release
	benchmarks/survey/run.py
	benchmarks/survey/inodes.py
	benchmarks/survey/watch.py

bench-plan:       ## plan with every model on a survey of 100 million files
	cargo build --release
	benchmarks/plan/run.py

bench-trace:      ## traces read: text of strace and the own form
	cargo build --release
	benchmarks/trace/run.py

bench-generate:   ## generated trees: speed beside a plain loop, distance from their sources
	cargo build --release
	benchmarks/generate/run.py

bench-mrc:        ## miss-ratio curves: speed, memory and error of passes, samples and policies
	cargo bench --bench mrc

bench-index:      ## index libraries that the store could use; compiles them apart from granulo
	benchmarks/index/run.py

bench-index-scale: ## the store's index alone at INDEX_ENTRIES entries, in three orders; 100000000 take 10 GiB under TMPDIR and half an hour
	cargo test --release -p granulo-store --lib --no-run
	for entries in $(INDEX_ENTRIES); do for order in walk written shuffled; do \
	  INDEX_ENTRIES=$$entries INDEX_ORDER=$$order cargo test --release -p granulo-store --lib -q -- --ignored --nocapture index_at_scale \
	    | grep '^entries=' || exit 1; \
	done; done

bench-store:      ## the store beside files, archives, databases and a floor; needs root and some patience
	benchmarks/store/run.py

bench-mount:      ## a mounted store beside ext4, squashfs, squashfuse and ratarmount; needs root and an hour
	cargo build --release
	benchmarks/mount/run.py

bench-bucket:     ## a store in a bucket of a real Ceph beside one object a file; needs what benchmarks/bucket/install-peers.sh installs, and hours
	cargo build --release --features bucket
	benchmarks/bucket/run.py

bench-python:     ## reading from Python: files, granulo, LMDB, HDF5, tar shards; needs root for cold reads, and some gigabytes
	python3 -m venv target/bench-python
	target/bench-python/bin/pip install --quiet ./crates/python lmdb h5py webdataset
	target/bench-python/bin/python benchmarks/python/run.py
	target/bench-python/bin/python benchmarks/python/memory.py

bench-all:        ## one full run of each bench; needs root, an hour and a quiet machine
	cargo build --release
	benchmarks/bench/run.sh

man:              ## man pages under target/man
	cargo build --release
	mkdir -p target/man && ./target/release/granulo man --directory target/man

dist:             ## static binaries, archives, Debian packages and checksums under target/dist
	packaging/dist.sh

wheel:            ## the Python package under target/wheels: for any Linux with glibc 2.17, and the source; zig from PyPI
	packaging/wheel.sh

test-dist:        ## what `make dist` made, in an empty root and in a fresh Debian (needs root, debootstrap and a mirror)
	tests/dist.sh target/dist

notices:          ## licences of what the binary contains: packaging/THIRD-PARTY.md
	packaging/notices.py

#!/usr/bin/env bash
# All tests, with those that take long or need a machine that does nothing else: bounds of accuracy, all seeds,
# torture, the kernel matrix, and the quick cells of all plans. Takes hours.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
status=0
export LULL_QUIET_MACHINE=1 LULL_CC_EVENTS=100000 LULL_KILLS=100 LULL_REPLICATE_SEEDS=2000 LULL_REPLICATE_DATABASE_SEEDS=1000
LULL_REPLICATE_FILES=32000 scripts/test.sh --full || status=1
unset LULL_QUIET_MACHINE
scripts/setup.sh plans

lull=${CARGO_TARGET_DIR:-target}/checked/lull
out=$(mktemp -d "${TMPDIR:-/tmp}/lull-plans.XXXXXX")
trap 'rm -rf "$out"' EXIT
say "origin and replicas while everything around them breaks"
# Seed 2: with half of all seeds, a minute finds replicas that count by wall clocks, however wrong those are.
"$lull" lab torture --seconds 600 --seed 2 --json || status=1
say "packages in clean systems, units under systemd, and the container image"
scripts/packages.sh checked && scripts/packages-test.sh && scripts/systemd-test.sh || status=1
scripts/image.sh --no-build checked && scripts/image-test.sh || status=1
scripts/container-test.sh "$lull" || status=1
say "real programs, and transfers beside a foreground that fills the link for ten minutes"
scripts/real-programs.sh || status=1
scripts/survival.sh 600 || status=1
scripts/survival-download.sh 600 || status=1
say "the quick cells of all plans"
plans=('*')
# Most of them replay a log, which is no part of the project.
[ -d ../shared/data ] || plans=(fill-alone fill-alone5 peers predict-speed bench-dumbbell 'kernel-*' demo exec-background)
"$lull" lab run "${plans[@]}" --quick --out "$out" || status=1
scripts/report.sh --check || status=1
[ "$status" = 0 ] || die "see above"

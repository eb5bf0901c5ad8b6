#!/usr/bin/env bash
# Installs what is missing, builds, and shows the main job: a download that does not notice an
# rsync under `lull exec`.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
scripts/setup.sh

say "building"
cargo build "${cargo_flags[@]}" --bin lull --bin lull-lab
lull=${CARGO_TARGET_DIR:-target}/checked/lull

if [ "$(id -u)" = 0 ] || ! command -v sudo >/dev/null; then
    exec "$lull" lab demo "$@"
fi
echo "The demo makes network namespaces and loads a congestion control into the kernel: as root, by sudo."
status=0
sudo "$lull" lab demo "$@" || status=$?
if [ -d out ]; then
    sudo chown -R "$(id -u):$(id -g)" out
fi
exit "$status"

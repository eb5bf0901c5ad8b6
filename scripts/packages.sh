#!/usr/bin/env bash
# Builds what people install, in target/packages: a .deb, an .rpm, and a tarball with its checksums and SBOM.
#
#   scripts/packages.sh [--no-build] [PROFILE]
#
# PROFILE is dist, or checked for tests. With --no-build the programs that are in target/ are packaged.
#
# cargo-deb, cargo-generate-rpm and cargo-cyclonedx are installed into target/tools if they are missing.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=scripts/package-options.sh
. scripts/package-options.sh
scripts/setup.sh

stage=$out/stage

install_tool() {
    cargo "$1" --version >/dev/null 2>&1 || command -v "cargo-$1" >/dev/null && return
    say "installing cargo-$1"
    cargo install --locked --root "$tools" --version "$2" "cargo-$1"
}

if [ $build = yes ]; then
    say "building"
    build_programs lull lull-lab
fi
lull=$target/$profile/lull

say "manual pages, completions and units"
rm -rf "$out"
mkdir -p "$stage"/bin "$stage"/man "$stage"/completions
install --strip -m 755 "$lull" "$target/$profile/lull-lab" "$stage/bin/"
"$lull" manual-pages "$stage/man"
gzip -9n "$stage"/man/*.1
"$lull" completions bash >"$stage/completions/lull.bash"
"$lull" completions zsh >"$stage/completions/_lull"
"$lull" completions fish >"$stage/completions/lull.fish"
cp -r packaging/systemd packaging/sysusers packaging/grafana packaging/prometheus LICENSE-MIT LICENSE-APACHE README.md CHANGELOG.md "$stage/"
cp bpf/LICENSE "$stage/LICENSE-bpf"

# The manifest names staged files by their place in the default target folder.
[ "$(realpath "$target")" = "$(realpath target)" ] || die "packages are built in target/: unset CARGO_TARGET_DIR"

say "Debian package"
install_tool deb 3.8.0
cargo deb --quiet --no-build --no-strip --no-dbgsym --package lull --profile "$profile" --output "$out/"

say "RPM package"
install_tool generate-rpm 0.21.1
# Without rpm its own detection of libraries serves as well.
cargo generate-rpm --package crates/cli --profile "$profile" --output "$out/" --auto-req builtin --payload-compress zstd

say "tarball"
name=lull-$version-$(uname -m)-linux
cp -r "$stage" "$out/$name"
# The same input gives the same bytes.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$(git log -1 --format=%ct 2>/dev/null || echo 0)" \
    -C "$out" -cf - "$name" | gzip -9n >"$out/$name.tar.gz"
rm -r "${out:?}/$name"
# What `cargo binstall` fetches, and where it finds the programs.
binstall() {
    sed -n "s|^$1 = \"\(.*\)\"|\1|p" crates/cli/Cargo.toml |
        sed "s|{ version }|$version|g; s|{ target-arch }|$(uname -m)|g; s|{ bin }|${2:-}|g"
}
[ "$(basename "$(binstall pkg-url)")" = "$name.tar.gz" ] || die "pkg-url in crates/cli/Cargo.toml does not name $name.tar.gz"
for program in lull lull-lab; do
    tar -tzf "$out/$name.tar.gz" "$(binstall bin-dir $program)" >/dev/null || die "bin-dir in crates/cli/Cargo.toml does not lead to $program"
done

if [ "$profile" = dist ] || command -v cargo-cyclonedx >/dev/null; then
    say "bill of materials"
    install_tool cyclonedx 0.5.9
    cargo cyclonedx --quiet --format json --spec-version 1.5 --manifest-path crates/cli/Cargo.toml \
        --override-filename "$name.cdx" --no-build-deps
    find crates -maxdepth 2 -name "$name.cdx.json" ! -path 'crates/cli/*' -delete
    mv "crates/cli/$name.cdx.json" "$out/"
fi

(cd "$out" && find . -maxdepth 1 -type f | sort | xargs sha256sum >"stage/SHA256SUMS" && mv stage/SHA256SUMS .)
say "in $out"
cat "$out/SHA256SUMS"

#!/usr/bin/env bash
# Builds the container image of `lull web`, `lull origin` and `lull replica` in target/packages: an OCI archive, which
# `podman load`, `docker load` and `skopeo copy oci-archive:…` read. It needs no daemon. Run it as root.
#
#   scripts/image.sh [--no-build] [PROFILE]     PROFILE is dist, or checked for tests
#
# The image has the program, the libraries that it links to with their certificates and time zones as packages of the
# Debian release that this machine has, and no shell. It runs as user 65532.
# shellcheck source=scripts/env.sh
. "$(dirname "$0")/env.sh"
# shellcheck source=scripts/package-options.sh
. scripts/package-options.sh
# shellcheck source=/dev/null
release=$(. /etc/os-release && echo "${VERSION_CODENAME:-}")

[ "$(id -u)" = 0 ] || die "run it as root: files of the image belong to root"
missing=()
for tool in mmdebstrap umoci; do
    command -v $tool >/dev/null || missing+=("$tool")
done
if [ ${#missing[@]} -gt 0 ]; then
    apt-get -q update
    DEBIAN_FRONTEND=noninteractive apt-get -q install -y --no-install-recommends --no-remove "${missing[@]}"
fi
if [ $build = yes ]; then
    scripts/setup.sh
    say "building"
    build_programs lull
fi

work=$(mktemp -d "${TMPDIR:-/tmp}/lull-image.XXXXXX")
trap 'rm -rf --one-file-system "$work"' EXIT
epoch=$(git log -1 --format=%ct 2>/dev/null || echo 0)
export SOURCE_DATE_EPOCH=$epoch

say "root file system: Debian $release"
# Extracted and not set up: these need no scripts of their packages.
mmdebstrap --quiet --mode=root --variant=extract --include=base-files,ca-certificates,libc6,libelf1,libgcc-s1,netbase,tzdata,zlib1g \
    "$release" "$work/root" "deb http://deb.debian.org/debian $release main" \
    "deb http://deb.debian.org/debian $release-updates main" \
    "deb http://deb.debian.org/debian-security $release-security main"
root=$work/root
# The certificates in one file, as update-ca-certificates makes it.
find "$root/usr/share/ca-certificates" -name '*.crt' | sort | xargs cat >"$work/certificates"
rm -rf "${root:?}"/{usr/share/{doc,man,info,locale,lintian,bug},var/cache,var/log,etc/apt,etc/ca-certificates*}
find "$root/var/lib/dpkg" -mindepth 1 ! -name status -delete
install -D -m 644 "$work/certificates" "$root/etc/ssl/certs/ca-certificates.crt"
printf 'root:x:0:0:root:/root:/usr/sbin/nologin\nlull:x:65532:65532:lull:/var/lib/lull:/usr/sbin/nologin\n' >"$root/etc/passwd"
printf 'root:x:0:\nlull:x:65532:\n' >"$root/etc/group"
install -D --strip -m 755 "$target/$profile/lull" "$root/usr/bin/lull"
install -d -m 755 "$root/usr/share/doc/lull"
install -m 644 LICENSE-MIT LICENSE-APACHE bpf/LICENSE "$root/usr/share/doc/lull/"
install -d -m 700 -o 65532 -g 65532 "$root/var/lib/lull"
needed=$(chroot "$root" /usr/bin/lull --version) || die "the program does not run in the image"
say "$needed runs in $(du -sh "$root" | cut -f 1)"

say "image"
layout=$work/layout
umoci=(umoci --log error)
"${umoci[@]}" init --layout "$layout"
"${umoci[@]}" new --image "$layout:$version"
"${umoci[@]}" insert --image "$layout:$version" "$root" /
"${umoci[@]}" config --image "$layout:$version" \
    --author "The Lull authors" --created "$(date -u -d "@$epoch" +%Y-%m-%dT%H:%M:%SZ)" \
    --config.user 65532:65532 --config.entrypoint /usr/bin/lull --config.cmd --help \
    --config.workingdir /var/lib/lull --config.volume /var/lib/lull --config.env PATH=/usr/bin \
    --config.exposedports 8080/tcp --config.exposedports 7070/tcp --config.exposedports 7080/tcp \
    --config.label org.opencontainers.image.title=lull \
    --config.label "org.opencontainers.image.version=$version" \
    --config.label "org.opencontainers.image.licenses=MIT OR Apache-2.0" \
    --config.label "org.opencontainers.image.revision=$(git rev-parse HEAD 2>/dev/null || echo unknown)"
"${umoci[@]}" gc --layout "$layout"
# umoci only knows the tag. Podman and Skopeo read the first annotation, Docker and containerd the second.
name=localhost/lull:$version
sed -i "s,\"org.opencontainers.image.ref.name\":\"$version\",\"org.opencontainers.image.ref.name\":\"$name\"\,\"io.containerd.image.name\":\"$name\"," \
    "$layout/index.json"
grep -qF "\"$name\"" "$layout/index.json" || die "the image has no name: $(cat "$layout/index.json")"
mkdir -p "$out"
archive=lull-$version-$(uname -m).oci.tar
# The same input gives the same bytes.
tar --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$epoch" -C "$layout" -cf "$out/$archive" .
(cd "$out" && sha256sum "$archive" >"$archive.sha256")
say "in $out"
cat "$out/$archive.sha256"

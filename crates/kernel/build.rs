//! Compiles the programs of `bpf/` and writes a typed skeleton for each, with the program compressed.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

use flate2::Compression;
use flate2::write::DeflateEncoder;
use libbpf_cargo::SkeletonBuilder;

/// Every program of `bpf/`; each becomes a module of the same name.
const PROGRAMS: [&str; 10] = [
    "admission",
    "background",
    "delegation",
    "exec",
    "foreground",
    "lull",
    "nice",
    "receive",
    "status",
    "udp",
];

fn main() {
    let bpf = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../bpf");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    println!("cargo::rerun-if-changed={}", bpf.display());
    let headers = [
        "background_types.h",
        "lull_types.h",
        "nice_types.h",
        "noise_floor_types.h",
        "path_foreground_types.h",
        "path_key_types.h",
        "rtt_history_types.h",
        "shared_path_types.h",
    ]
    .map(|name| bpf.join(name));
    println!("cargo::rustc-env=LULL_STATE={}", state(&headers));
    for name in PROGRAMS {
        let source = bpf.join(format!("{name}.bpf.c"));
        let object = out.join(format!("{name}.o"));
        let skeleton = out.join(format!("{name}.skel.rs"));
        SkeletonBuilder::new()
            .source(&source)
            .obj(&object)
            .reference_obj(true)
            .clang_args(clang_arguments(&bpf))
            .build_and_generate(&skeleton)
            .unwrap_or_else(|error| {
                panic!(
                    "cannot compile {}: {error:?}\n\
                     the packages clang, libelf-dev, zlib1g-dev and linux-libc-dev are needed",
                    source.display()
                )
            });
        compress(&object, &skeleton).unwrap_or_else(|error| {
            panic!("cannot compress {}: {error}", object.display());
        });
    }
}

/// Replaces the object in its skeleton by a compressed one, which is decompressed at the first use.
fn compress(object: &Path, skeleton: &Path) -> io::Result<()> {
    let compressed = object.with_extension("deflate");
    let mut encoder = DeflateEncoder::new(File::create(&compressed)?, Compression::best());
    io::copy(&mut File::open(object)?, &mut encoder)?;
    encoder.finish()?;
    let text = fs::read_to_string(skeleton)?;
    // The last item of the skeleton's module, in a section for data that is not compressed.
    let (before, _) = text
        .split_once("#[unsafe(link_section = \".bpf.objs\")]")
        .filter(|(_, data)| data.contains("static DATA"))
        .expect("the skeletons of libbpf-cargo end with DATA");
    let data = format!(
        "static DATA: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| \
         crate::skeletons::decompressed(include_bytes!({:?})));\n}}\n",
        compressed.display().to_string()
    );
    fs::write(skeleton, format!("{before}{data}"))
}

/// A number that changes whenever the state that a congestion control keeps of a socket, or its meaning, may
/// have changed: a hash of the text that declares it (FNV-1a, 64 bits).
fn state(headers: &[PathBuf]) -> u64 {
    let text = headers.iter().flat_map(|header| {
        std::fs::read(header)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", header.display()))
    });
    text.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The include paths for clang beside libbpf's own headers: ours, and the directory in which Debian keeps
/// `asm/types.h`, which the compiler for the BPF target does not search by itself.
fn clang_arguments(bpf: &Path) -> Vec<String> {
    let architecture = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo sets the architecture");
    let mut arguments = vec![
        format!("-I{}", bpf.display()),
        "-Wall".to_owned(),
        "-Wextra".to_owned(),
        "-Wno-unused-parameter".to_owned(),
        "-mcpu=v3".to_owned(),
    ];
    let headers = PathBuf::from(format!("/usr/include/{architecture}-linux-gnu"));
    if headers.is_dir() {
        arguments.push(format!("-idirafter{}", headers.display()));
    }
    arguments
}

//! The output of libbpf-cargo for `bpf/`.

#![allow(missing_docs, unreachable_pub, dead_code, clippy::all, clippy::undocumented_unsafe_blocks)]

use std::io::Read;

use flate2::read::DeflateDecoder;

/// An object of `build.rs`.
fn decompressed(object: &[u8]) -> Vec<u8> {
    let mut data = Vec::new();
    DeflateDecoder::new(object).read_to_end(&mut data).expect("build.rs compressed it");
    data
}

pub(crate) mod admission {
    include!(concat!(env!("OUT_DIR"), "/admission.skel.rs"));
}

pub(crate) mod background {
    include!(concat!(env!("OUT_DIR"), "/background.skel.rs"));
}

pub(crate) mod delegation {
    include!(concat!(env!("OUT_DIR"), "/delegation.skel.rs"));
}

pub(crate) mod exec {
    include!(concat!(env!("OUT_DIR"), "/exec.skel.rs"));
}

pub(crate) mod foreground {
    include!(concat!(env!("OUT_DIR"), "/foreground.skel.rs"));
}

pub(crate) mod lull {
    include!(concat!(env!("OUT_DIR"), "/lull.skel.rs"));
}

pub(crate) mod nice {
    include!(concat!(env!("OUT_DIR"), "/nice.skel.rs"));
}

pub(crate) mod receive {
    include!(concat!(env!("OUT_DIR"), "/receive.skel.rs"));
}

pub(crate) mod status {
    include!(concat!(env!("OUT_DIR"), "/status.skel.rs"));
}

pub(crate) mod udp {
    include!(concat!(env!("OUT_DIR"), "/udp.skel.rs"));
}

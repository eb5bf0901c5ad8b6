//! Variants of a congestion control that live as long as the process that wants them.

use std::mem::MaybeUninit;

use libbpf_rs::Link;
use libbpf_rs::skel::OpenSkel;
use lull_cc::NiceParameters;

use crate::error::{Error, Result};
use crate::{load, machine};

/// A congestion control that is registered until this value is dropped, or its process ends,
/// however that happens. Sockets that run it then keep it until they are closed.
#[derive(Debug)]
pub struct Held {
    name: String,
    _link: Link,
}

impl Held {
    /// The name that sockets choose it by.
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// Registers a congestion control with any parameters at all for as long as the returned value
/// lives. Nothing is pinned; for research and tests. What people use is [`crate::load`].
///
/// # Errors
/// Whatever keeps the kernel from taking it; nothing is left behind then.
pub fn hold(name: &str, parameters: &NiceParameters) -> Result<Held> {
    machine::check_name(name)?;
    machine::check_privilege("loading a congestion control")?;
    machine::check_kernel()?;
    if machine::has_congestion(name)? {
        return Err(Error::NameTaken { name: name.to_owned() });
    }
    let mut object = MaybeUninit::uninit();
    let open = load::open_as(&mut object, name, false, parameters)?;
    let mut loaded = open.load().map_err(Error::bpf("load the congestion control"))?;
    let link = loaded
        .maps
        .nice
        .attach_struct_ops()
        .map_err(Error::bpf("register the congestion control"))?;
    Ok(Held { name: name.to_owned(), _link: link })
}

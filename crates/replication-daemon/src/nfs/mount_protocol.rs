//! The mount protocol, version 3 (RFC 1813 appendix I): the handle of the root, or of a folder below it.

use nfs3_types::mount::{VERSION, fhandle3, mountres3, mountres3_ok, mountstat3};
use nfs3_types::nfs3::nfsstat3;
use nfs3_types::xdr_codec::Opaque;

use super::files::Files;
use super::handles::Node;
use super::rpc::{Call, Refused, packed};

/// The longest path to mount (MNTPATHLEN).
const MAX_PATH_BYTES: usize = 1_024;
/// `AUTH_SYS` and `AUTH_NONE`.
const FLAVORS: [u32; 2] = [1, 0];

/// The result of a call, as bytes.
pub(super) async fn answer(files: &Files, call: Call<'_>) -> Result<Vec<u8>, Refused> {
    call.expect_version(VERSION)?;
    let mut arguments = call.arguments;
    match call.procedure {
        // NULL, UMNT and UMNTALL: nothing is remembered of clients.
        0 | 3 | 4 => Ok(Vec::new()),
        1 => {
            let path = arguments.opaque(MAX_PATH_BYTES).ok_or(Refused::Garbage)?;
            packed(&mount(files, path).await)
        }
        // DUMP: an empty list.
        2 => packed(&false),
        // EXPORT: the root, for all clients.
        5 => {
            Ok([packed(&true)?, packed(&Opaque::borrowed(b"/"))?, packed(&false)?, packed(&false)?]
                .concat())
        }
        _ => Err(Refused::NoProcedure),
    }
}

async fn mount(files: &Files, path: &[u8]) -> mountres3<'static> {
    let mut node = Node::Folder(None);
    for name in path.split(|byte| *byte == b'/').filter(|name| !name.is_empty()) {
        let looked_up = match files.child(&node, name) {
            Ok(path) => files.entry(&path).await.map(|(_, entry)| entry.map(|one| (path, one))),
            Err(status) => Err(status),
        };
        node = match looked_up {
            Ok(Some((path, entry))) => Files::node(path, &entry),
            Ok(None) | Err(nfsstat3::NFS3ERR_NOENT) => {
                return mountres3::Err(mountstat3::MNT3ERR_NOENT);
            }
            Err(nfsstat3::NFS3ERR_NAMETOOLONG) => {
                return mountres3::Err(mountstat3::MNT3ERR_NAMETOOLONG);
            }
            // This protocol has no way to say that the client should try again.
            Err(_) => return mountres3::Err(mountstat3::MNT3ERR_SERVERFAULT),
        };
        if matches!(node, Node::File(..)) {
            return mountres3::Err(mountstat3::MNT3ERR_NOTDIR);
        }
    }
    let fhandle = fhandle3(Opaque::owned(files.handle_bytes(&node)));
    mountres3::Ok(mountres3_ok { fhandle, auth_flavors: FLAVORS.to_vec() })
}

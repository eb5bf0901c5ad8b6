//! Remedies for system errors by their causes: the text after the failure.

use std::io::{self, ErrorKind};

/// For a file or a folder that cannot be used.
pub(crate) fn of_file(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::PermissionDenied => {
            ": make it readable and writable for this user, or run the command as its owner"
        }
        ErrorKind::ReadOnlyFilesystem => ": mount its disk for writing, or name another folder",
        _ => "",
    }
}

/// For an address that cannot be listened on.
pub(crate) fn of_address(error: &io::Error) -> &'static str {
    match error.kind() {
        ErrorKind::AddrInUse => ": another program listens there, end it or name another port",
        ErrorKind::AddrNotAvailable => ": this machine has no such address, name one that it has",
        ErrorKind::PermissionDenied => {
            ": ports below 1024 need root or CAP_NET_BIND_SERVICE, name a higher one"
        }
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use crate::daemon::DaemonError;
    use crate::identity::IdentityError;
    use crate::store::StoreError;

    use super::*;

    #[test]
    fn system_error_says_how_to_fix_it() {
        let listen = |kind: ErrorKind| {
            let address = "0.0.0.0:80".to_owned();
            DaemonError::Listen { address, source: kind.into() }.to_string()
        };
        let store = |kind: ErrorKind| {
            StoreError::Folder { path: "here".into(), source: kind.into() }.to_string()
        };
        let identity = |kind: ErrorKind| {
            IdentityError::File { path: "here".into(), source: kind.into() }.to_string()
        };
        for (told, words) in [
            (listen(ErrorKind::AddrInUse), "cannot listen on 0.0.0.0:80: another program"),
            (listen(ErrorKind::AddrNotAvailable), "this machine has no such address"),
            (listen(ErrorKind::PermissionDenied), "need root or CAP_NET_BIND_SERVICE"),
            (store(ErrorKind::PermissionDenied), "`here` cannot be used: make it readable"),
            (store(ErrorKind::ReadOnlyFilesystem), "mount its disk for writing"),
            (identity(ErrorKind::PermissionDenied), "or run the command as its owner"),
        ] {
            assert!(told.contains(words), "{told}");
        }
        // A self-explanatory error is appended.
        assert_eq!(listen(ErrorKind::InvalidInput), "cannot listen on 0.0.0.0:80");
    }
}

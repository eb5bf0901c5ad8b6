//! The kill switch: a file.

use std::path::PathBuf;
use std::time::Duration;

/// How often the existence of the kill switch's file is checked.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Whether the file of the kill switch exists. If that is unknown, it counts as existing: otherwise an
/// operator would find out too late that the proxy has no access to the folder.
pub(super) fn is_there(file: Option<&PathBuf>) -> bool {
    file.is_some_and(|file| file.try_exists().unwrap_or(true))
}

/// Checks regularly whether the file of the kill switch exists.
pub(super) async fn watch(file: Option<&PathBuf>, set_off: impl Fn(bool)) {
    loop {
        tokio::time::sleep(CHECK_INTERVAL).await;
        set_off(is_there(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inaccessible_kill_switch_counts_as_on() {
        let folder = tempfile::tempdir().unwrap();
        let (file, turning) = (folder.path().join("off"), folder.path().join("turning"));
        assert!(!is_there(None) && !is_there(Some(&file)));
        assert!(!is_there(Some(&folder.path().join("no/folder"))));
        std::fs::write(&file, "").unwrap();
        assert!(is_there(Some(&file)));
        // Root has access to every folder, so this stands for an inaccessible one.
        std::os::unix::fs::symlink("turning", &turning).unwrap();
        assert!(is_there(Some(&turning)));
    }
}

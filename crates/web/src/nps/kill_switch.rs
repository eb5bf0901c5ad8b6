//! The kill switch: a file.

use std::path::PathBuf;
use std::time::Duration;

/// How often the file of the kill switch is looked for.
const OFF_LOOK: Duration = Duration::from_secs(1);

/// Whether the file of the kill switch is there. Where nobody can say, it is: who throws the switch is
/// not to find out too late that the proxy may not look into the folder.
pub(super) fn is_there(file: Option<&PathBuf>) -> bool {
    file.is_some_and(|file| file.try_exists().unwrap_or(true))
}

/// Looks now and then whether the file of the kill switch is there.
pub(super) async fn watch(file: Option<&PathBuf>, set_off: impl Fn(bool)) {
    loop {
        tokio::time::sleep(OFF_LOOK).await;
        set_off(is_there(file));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_switch_that_cannot_be_looked_for_is_thrown() {
        let folder = tempfile::tempdir().unwrap();
        let (file, turning) = (folder.path().join("off"), folder.path().join("turning"));
        assert!(!is_there(None) && !is_there(Some(&file)));
        assert!(!is_there(Some(&folder.path().join("no/folder"))));
        std::fs::write(&file, "").unwrap();
        assert!(is_there(Some(&file)));
        // Root may look into every folder, so this stands for one that nobody else may look into.
        std::os::unix::fs::symlink("turning", &turning).unwrap();
        assert!(is_there(Some(&turning)));
    }
}

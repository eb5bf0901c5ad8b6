//! Folders that survive a crash.

use std::fs::{File, create_dir_all};
use std::io;
use std::path::Path;

/// Makes a folder, and its missing parents. Their names are on the disk when this returns: files synced
/// within a folder whose name is not on the disk may be lost with it.
pub(crate) fn create(folder: &Path) -> io::Result<()> {
    let new: Vec<_> = folder.ancestors().take_while(|folder| !folder.exists()).collect();
    create_dir_all(folder)?;
    // From the top down, so that no name is durable before the name of its parent.
    for above in new.into_iter().rev().filter_map(Path::parent) {
        // The parent of a single name is the working directory.
        let above = if above.as_os_str().is_empty() { Path::new(".") } else { above };
        File::open(above)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_folders_are_created_and_existing_ones_stay() {
        let root = tempfile::tempdir().expect("a folder");
        let folder = root.path().join("a/b/c");
        for _ in 0..2 {
            create(&folder).expect("made");
            assert!(folder.is_dir());
        }
        std::fs::write(root.path().join("file"), "").expect("written");
        create(&root.path().join("file/below")).expect_err("a file is no folder");
    }
}

//! Writes a corpus for `cargo fuzz` to begin with: `fuzz/corpus/log`, `model` and `wire`.

use std::path::Path;
use std::{fs, io};

use lull_fuzz::{body, seeds};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let logs = seeds::LOGS.iter().map(|log| log.as_bytes().to_vec()).collect();
    let models = seeds::models().iter().map(body).collect();
    for (target, all) in
        [("log", logs), ("model", models), ("wire", seeds::streams())] as [(&str, Vec<Vec<u8>>); 3]
    {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in all.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), bytes)?;
        }
        println!("{}: {} files", folder.display(), all.len());
    }
    Ok(())
}

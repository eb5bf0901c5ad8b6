//! Writes an initial corpus for `cargo fuzz`: a folder of `fuzz/corpus` for each target.

use std::path::Path;
use std::{fs, io};

use lull_fuzz::{body, seeds};

fn main() -> io::Result<()> {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus");
    let logs = seeds::LOGS.iter().map(|log| log.as_bytes().to_vec()).collect();
    let models = seeds::models().iter().map(body).collect();
    let pages = seeds::PAGES.map(<[u8]>::to_vec).to_vec();
    let plans = seeds::plans().into_iter().map(String::into_bytes).collect();
    let targets: [(&str, Vec<Vec<u8>>); 5] = [
        ("log", logs),
        ("model", models),
        ("script_insertion", pages),
        ("plan", plans),
        ("wire", seeds::streams()),
    ];
    for (target, all) in targets {
        let folder = corpus.join(target);
        fs::create_dir_all(&folder)?;
        for (number, bytes) in all.iter().enumerate() {
            fs::write(folder.join(format!("seed-{number}")), bytes)?;
        }
        println!("{}: {} files", folder.display(), all.len());
    }
    Ok(())
}

//! The pinned files that an engine serves. Owns where they stand and that each was verified; must never keep one that has
//! other bytes.

use super::WeightsArgs;
use super::fetch::Fetcher;
use super::files;
use super::index::{Model, WeightFile, Weights};
use super::install;
use std::path::Path;
use warmpath_core::profile::slug;

/// Compares a folder with what is pinned, file by file.
pub fn run(args: &WeightsArgs) -> Result<(), String> {
    let (_, index) = install::open(&args.from)?;
    let model = index.model(&args.id)?;
    let weights =
        model.weights.as_ref().ok_or_else(|| format!("models.json pins no weights of {}", args.id))?;
    let mut wrong = 0;
    for file in &weights.files {
        let word = look(&args.folder, file);
        println!("{word:<9} {}", file.path);
        wrong += usize::from(word != VERIFIED);
    }
    let folder = args.folder.display();
    match wrong {
        0 => Ok(()),
        _ => Err(format!(
            "{wrong} of {} files in {folder} are not what is pinned; fetch them anew with install --weights-dir",
            weights.files.len()
        )),
    }
}

const VERIFIED: &str = "verified";

fn look(folder: &Path, file: &WeightFile) -> &'static str {
    let path = folder.join(&file.path);
    match std::fs::metadata(&path) {
        Err(_) => "missing",
        Ok(found) if found.len() != file.bytes => "differs",
        Ok(_) if files::has(&path, &file.sha256) => VERIFIED,
        Ok(_) => "differs",
    }
}

/// Fetches what is missing or differs into `ORG__NAME/REVISION`.
pub fn stage(
    folder: &Path,
    model: &Model,
    weights: &Weights,
    fetcher: &mut Fetcher,
    dry_run: bool,
) -> Result<(), String> {
    let revision = model.revision.as_deref();
    let revision = revision.ok_or_else(|| format!("models.json pins no revision of {}", model.id))?;
    let folder = folder.join(slug(&model.base_model)).join(revision);
    for file in &weights.files {
        let target = folder.join(&file.path);
        if look(&folder, file) == VERIFIED {
            println!("verified  {}", target.display());
            continue;
        }
        let from = format!("{}/{}", weights.from.trim_end_matches('/'), file.path);
        if dry_run {
            println!("would     fetch {from}, {} bytes, into {}", file.bytes, target.display());
            continue;
        }
        files::stream(&target, fetcher.open(&from)?, &file.sha256, file.bytes)?;
        println!("fetched   {}", target.display());
    }
    Ok(())
}

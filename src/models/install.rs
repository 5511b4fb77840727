//! Staging: a model's profile, manifest, probes, template and tokenizer into the registry, and on an engine's host its
//! weights and image. Owns the order, in which what a profile needs is there before the profile is; must never fetch what
//! is there and verified, nor stage a file that was not checked as the gateway checks it.

use super::InstallArgs;
use super::fetch::{Fetcher, is_url};
use super::files;
use super::index::{self, Index, Model, Pinned, Row, State};
use super::weights;
use std::path::{Path, PathBuf};
use std::process::Command;
use warmpath_core::engine::Engine;
use warmpath_core::profile::fixture::{self, Fixture};
use warmpath_core::profile::{self, manifest, sha256, slug};
use warmpath_prompt::load::registry::{FOLDER, fixture_folder};
use warmpath_prompt::profile::{read, read_manifest};

/// One file to be staged.
struct Item<'a> {
    target: PathBuf,
    pin: &'a Pinned,
    largest: u64,
}

/// Stages all that are asked for; an error ends it, and what was staged before stays.
pub fn run(args: &InstallArgs) -> Result<(), String> {
    let (mut fetcher, index) = open(&args.from)?;
    for id in &args.models {
        let model = index.model(id)?;
        let row = model.row(args.engine)?;
        if is_taken(args, model, row)? {
            install(args, &mut fetcher, &index, model, row)?;
        }
    }
    Ok(())
}

/// The source and its index.
pub fn open(from: &super::From) -> Result<(Fetcher, Index), String> {
    let source =
        from.from.as_deref().ok_or("say where models come from: --from DIR|URL with a models.json")?;
    if source.starts_with("http://") && from.sha256.is_none() {
        return Err(format!(
            "--from {source}: anyone on the way can change models.json; give its --sha256, or use https://"
        ));
    }
    let mut fetcher = Fetcher::new(source, from.hf_token_file.as_deref())?;
    let bytes = match &from.sha256 {
        Some(wanted) => fetcher.pinned("models.json", wanted, index::LARGEST)?,
        None => fetcher.read("models.json", index::LARGEST)?,
    };
    Ok((fetcher, Index::read(&bytes, &format!("models.json of {source}"))?))
}

/// Whether a model's state lets it be staged.
fn is_taken(args: &InstallArgs, model: &Model, row: &Row) -> Result<bool, String> {
    let (id, engine) = (&model.id, args.engine.name());
    let reason = row.reason.as_deref().unwrap_or_default();
    match row.state {
        State::Blocked => Err(format!("{id} is blocked with {engine}: {reason}")),
        State::Candidate if !args.include_candidates => {
            println!("skip      {id}: a candidate with {engine}: {reason}; --include-candidates takes it");
            Ok(false)
        }
        State::Candidate | State::Validated => Ok(true),
    }
}

fn install(
    args: &InstallArgs,
    fetcher: &mut Fetcher,
    index: &Index,
    model: &Model,
    row: &Row,
) -> Result<(), String> {
    println!(
        "{}: {} {} with {} {}",
        model.id,
        model.base_model,
        revision(model),
        args.engine.name(),
        row.version
    );
    let items = items(args, model, row)?;
    if let Some(replaced) = replaced(args, index, model, row) {
        println!("replaces  {replaced}");
    }
    for item in &items {
        let beside = items.iter().find(|own| own.pin.sha256 == item.pin.sha256 && own.is_staged());
        stage(args, fetcher, model, item, beside.map(|own| own.target.as_path()))?;
    }
    if let (Some(folder), Some(own)) = (&args.weights_dir, &model.weights) {
        weights::stage(folder, model, own, fetcher, args.dry_run)?;
    }
    if args.pull_image {
        pull(args, row)?;
    }
    Ok(())
}

/// What is staged, the profile last.
fn items<'a>(args: &InstallArgs, model: &'a Model, row: &'a Row) -> Result<Vec<Item<'a>>, String> {
    let registry = args.config_root.join(FOLDER);
    let missing =
        |what: &str| format!("models.json: {} names no {what}: it can't be staged from there", model.id);
    let profile = model.profile.as_ref().ok_or_else(|| missing("profile"))?;
    let tokenizer = model.tokenizer.as_ref().ok_or_else(|| missing("tokenizer"))?;
    let manifest = row.manifest.as_ref().ok_or_else(|| missing("manifest"))?;
    let by_content = |pin: &'a Pinned| Item {
        target: registry.join("artifacts/sha256").join(&pin.sha256),
        pin,
        largest: warmpath_prompt::load::LARGEST,
    };
    let mut items: Vec<Item<'a>> = model.template.iter().map(by_content).collect();
    items.push(by_content(tokenizer));
    let folder = args.config_root.join("tokenizers").join(slug(&model.base_model));
    items.push(Item { target: folder.join("tokenizer.json"), ..by_content(tokenizer) });
    let probes = args.config_root.join(fixture_folder(&model.id, args.engine));
    for probe in &row.fixtures {
        for (end, pin) in [("request", &probe.request), ("expect", &probe.expect)] {
            let target = probes.join(format!("{}.{end}.json", probe.name));
            items.push(Item { target, pin, largest: fixture::LARGEST });
        }
    }
    let target = registry.join("manifests").join(format!("{}.yaml", model.id));
    items.push(Item { target, pin: manifest, largest: manifest::LARGEST });
    let target = registry.join(format!("{}.yaml", model.id));
    items.push(Item { target, pin: profile, largest: profile::LARGEST });
    Ok(items)
}

impl Item<'_> {
    fn is_staged(&self) -> bool {
        files::has(&self.target, &self.pin.sha256)
    }
}

/// Writes a file, unless it is there: from the one `beside` it with the same bytes, else it is fetched.
fn stage(
    args: &InstallArgs,
    fetcher: &mut Fetcher,
    model: &Model,
    item: &Item<'_>,
    beside: Option<&Path>,
) -> Result<(), String> {
    let Item { target, pin, largest } = item;
    if item.is_staged() {
        println!("verified  {}", target.display());
        return Ok(());
    }
    if args.dry_run {
        let verb = if is_url(&pin.from) { "fetch" } else { "take" };
        println!("would     {verb} {} and stage {}", pin.from, target.display());
        return Ok(());
    }
    let bytes = match beside {
        Some(path) => std::fs::read(path).map_err(|e| format!("{}: can't be read: {e}", path.display()))?,
        None => fetcher.pinned(&pin.from, &pin.sha256, *largest)?,
    };
    check(&args.config_root, model, target, &bytes, args.engine)
        .map_err(|what| format!("{}: {what}", pin.from))?;
    files::write(target, &bytes)?;
    println!("staged    {}", target.display());
    Ok(())
}

/// That the gateway would take it, and that it is about this model.
fn check(root: &Path, model: &Model, target: &Path, bytes: &[u8], engine: Engine) -> Result<(), String> {
    let registry = root.join(FOLDER);
    if target == registry.join(format!("{}.yaml", model.id)) {
        return check_profile(model, bytes);
    }
    if target == registry.join("manifests").join(format!("{}.yaml", model.id)) {
        let manifest = read_manifest(bytes, &model.id).map_err(|fault| fault.to_string())?;
        let row = model.row(engine)?;
        if manifest.engine_version != row.version {
            let own = manifest.engine_version;
            return Err(format!(
                "engineVersion {own:?} is not the row's {:?}; correct models.json",
                row.version
            ));
        }
        return Ok(());
    }
    let name = target.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.strip_suffix(".expect.json") {
        // Its request was staged before it.
        Some(name) => {
            let request = target.with_file_name(format!("{name}.request.json"));
            let request = std::fs::read(&request).map_err(|e| format!("{}: {e}", request.display()))?;
            Fixture::read(name, request, bytes).map(drop).map_err(|fault| fault.to_string())
        }
        None => Ok(()),
    }
}

fn check_profile(model: &Model, bytes: &[u8]) -> Result<(), String> {
    let profile = read(bytes).map_err(|fault| fault.to_string())?;
    if profile.id != model.id || profile.base_model != model.base_model {
        return Err(format!(
            "it is {} of {}, not {} of {}",
            profile.id, profile.base_model, model.id, model.base_model
        ));
    }
    let pins = [
        ("tokenizer", profile.tokenizer(), &model.tokenizer),
        ("template", profile.template(), &model.template),
    ];
    for (name, pinned, staged) in pins {
        let staged = staged.as_ref().map(|pin| pin.sha256.as_str());
        if pinned.is_some_and(|own| Some(own.sha256) != staged) {
            return Err(format!("it pins another {name} than models.json; correct one of them"));
        }
        if let Some(own) = pinned.filter(|own| own.locator != format!("sha256/{}", own.sha256)) {
            return Err(format!("its {name} is at {:?}; write sha256/ and the digest", own.locator));
        }
    }
    Ok(())
}

/// What a manifest stands in whose place another will stand.
fn replaced(args: &InstallArgs, index: &Index, model: &Model, row: &Row) -> Option<String> {
    let path = args.config_root.join(FOLDER).join("manifests").join(format!("{}.yaml", model.id));
    let found = sha256(&std::fs::read(&path).ok()?);
    if row.manifest.as_ref().is_some_and(|own| own.sha256 == found) {
        return None;
    }
    let is_it = |own: &&(&String, &Row)| own.1.manifest.as_ref().is_some_and(|pin| pin.sha256 == found);
    let known = index.model(&model.id).ok()?.engines.iter().collect::<Vec<_>>();
    let whose = match known.iter().find(is_it) {
        Some((engine, row)) => format!("the manifest of {engine} {}", row.version),
        None => format!("a manifest that is not of this list, SHA-256 {found}"),
    };
    Some(format!(
        "{whose}: rules with another kvEngineType are fenced until it is staged again: {}",
        path.display()
    ))
}

fn pull(args: &InstallArgs, row: &Row) -> Result<(), String> {
    let (Some(image), Some(digest)) = (&row.image, &row.image_digest) else {
        println!(
            "SKIP_NO_PULLABLE_IMAGE {} {}: build it from the release's wheel",
            args.engine.name(),
            row.version
        );
        return Ok(());
    };
    let reference = format!("{image}@{digest}");
    if args.dry_run {
        println!("would     pull {reference}");
        return Ok(());
    }
    let done = Command::new("docker").args(["pull", &reference]).status();
    match done
        .map_err(|e| format!("docker can't be run: {e}; install it, or pull {reference} yourself"))?
        .success()
    {
        true => Ok(()),
        false => Err(format!("docker could not pull {reference}; see what it said above")),
    }
}

/// A model's revision, for people.
pub fn revision(model: &Model) -> &str {
    model.revision.as_deref().unwrap_or("of any revision")
}

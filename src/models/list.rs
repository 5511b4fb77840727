//! What is known of each model with each engine, as a table, JSON, or the document `core/catalog/MODELS.md`. Owns the
//! layout; what is known is the index's.

use super::index::{Index, Model, Row};
use super::install::{self, revision};
use super::{Form, ListArgs};
use serde_json::{Value, json};
use std::fmt::Write as _;
use std::io::Write as _;

const HEAD: &str = "# Models\n\n\
<!-- Generated from core/catalog/models.json: `UPDATE=1 cargo test -p warmpath --bin warmpath models_md` -->\n\n\
What is known of models with engines by this program itself; `warmpath models list --from DIR|URL` tells what a source\n\
has. `validated` is supported, `candidate` was qualified and is not, `blocked` can't work.\n\n\
| Model | Revision | Engine | Image digest | State | Memory | Arguments | Reason |\n\
|---|---|---|---|---|---|---|---|\n";

/// Prints it.
pub fn run(args: &ListArgs) -> Result<(), String> {
    let index = match args.from.from {
        Some(_) => install::open(&args.from)?.1,
        None => Index::built_in()?,
    };
    let rows: Vec<(&Model, &str, &Row)> = rows(&index)
        .into_iter()
        .filter(|(_, engine, _)| args.engine.is_none_or(|wanted| wanted.name() == *engine))
        .collect();
    let text = match args.output {
        Form::Json => format!("{:#}\n", Value::from(rows.iter().map(json_of).collect::<Vec<_>>())),
        Form::Markdown => markdown(&rows),
        Form::Table => table(&rows),
    };
    // Whoever reads it may have read enough.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

fn rows(index: &Index) -> Vec<(&Model, &str, &Row)> {
    let of = |model| {
        let model: &Model = model;
        model.engines.iter().map(move |(engine, row)| (model, engine.as_str(), row))
    };
    index.models.iter().flat_map(of).collect()
}

fn json_of((model, engine, row): &(&Model, &str, &Row)) -> Value {
    json!({
        "id": model.id, "baseModel": model.base_model, "revision": model.revision, "engine": engine,
        "version": row.version, "imageDigest": row.image_digest, "state": row.state.word(), "reason": row.reason,
        "memory": row.memory, "arguments": row.arguments,
    })
}

fn table(rows: &[(&Model, &str, &Row)]) -> String {
    let mut out = String::new();
    for (model, engine, row) in rows {
        // Writing to a string can't fail.
        let _ = writeln!(
            out,
            "{:<10} {} ({} {}), {} {}",
            row.state.word(),
            model.id,
            model.base_model,
            revision(model),
            engine,
            row.version
        );
        let told = [
            ("image", row.image_digest.clone()),
            ("memory", row.memory.clone()),
            ("arguments", Some(row.arguments.join(" ")).filter(|own| !own.is_empty())),
            ("reason", row.reason.clone()),
        ];
        for (name, value) in told {
            if let Some(value) = value {
                let _ = writeln!(out, "           {name}: {value}");
            }
        }
    }
    out
}

fn markdown(rows: &[(&Model, &str, &Row)]) -> String {
    let mut out = HEAD.to_string();
    for (model, engine, row) in rows {
        let open = |value: &Option<String>| value.as_deref().unwrap_or("").replace('|', "\\|");
        let _ = writeln!(
            out,
            "| {} | {} | {engine} {} | {} | {} | {} | {} | {} |",
            model.base_model,
            revision(model),
            row.version,
            open(&row.image_digest),
            row.state.word(),
            open(&row.memory),
            row.arguments.join(" "),
            open(&row.reason)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_md_is_generated() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/core/catalog/MODELS.md");
        let wanted = markdown(&rows(&Index::built_in().expect("it is sound")));
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(path, &wanted).expect("it can be written");
        }
        assert_eq!(std::fs::read_to_string(path).unwrap_or_default(), wanted, "run it with UPDATE=1");
    }
}

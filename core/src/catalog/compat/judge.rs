//! The answers to one question of compatibility: a line for each thing it asks, with the row behind it. Owns their words.

use super::{BlockPath, Build, CellVerdict, Compat, Configuration, Limit, Minimum, Release};

/// What somebody is about to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question<'a> {
    /// The engine.
    pub engine: Build,
    /// Its version, if it is known.
    pub version: Option<Release>,
    /// As what.
    pub configuration: Configuration,
    /// What moves blocks, as Mooncake spells it.
    pub transport: Option<&'a str>,
    /// Over which ways.
    pub paths: &'a [BlockPath],
    /// The router in front, by name.
    pub router: Option<&'a str>,
    /// Flags that the engine is started with, if that is known.
    pub flags: Option<&'a [String]>,
}

/// Whether something is to be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Standing {
    /// Reported to work.
    Works,
    /// With something that the operator has to do.
    Needs,
    /// No row says so: nothing refuses it, and nothing says that it works.
    NotVerified,
    /// It does not.
    Refused,
}

impl Standing {
    /// As printed.
    pub const fn word(self) -> &'static str {
        ["works", "needs", "not_verified", "refused"][self as usize]
    }
}

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Whether.
    pub standing: Standing,
    /// The row of the catalog; empty where there is none.
    pub row: String,
    /// A sentence with the cure.
    pub says: String,
}

fn answer(standing: Standing, row: &str, says: impl Into<String>) -> Answer {
    Answer { standing, row: row.to_owned(), says: says.into() }
}

impl Compat {
    /// What the tables say of it, the floor first. Never empty.
    pub fn judge(&self, question: &Question<'_>) -> Vec<Answer> {
        let mut answers = Vec::new();
        match self.minimum(question.engine, question.configuration) {
            Some(row) => {
                answers.push(floor(row, question.version.as_ref()));
                answers.extend(flag(row, question));
                answers.extend(router(row, question.router));
            }
            None => answers.push(answer(
                Standing::NotVerified,
                "",
                format!("no row of {} as {}", question.engine.word(), question.configuration.word()),
            )),
        }
        answers.extend(self.moved(question));
        answers
    }

    /// What is said of the ways that blocks take.
    fn moved(&self, question: &Question<'_>) -> Vec<Answer> {
        let (Some(given), [first, more @ ..]) = (question.transport, question.paths) else {
            return Vec::new();
        };
        let name = given.to_ascii_lowercase();
        let name = if name == "auto" { "tcp" } else { &name };
        let Some(row) = self.transport(question.engine, name) else {
            let says = format!("no row of {given} with {}", question.engine.word());
            return vec![answer(Standing::NotVerified, "", says)];
        };
        let cells = std::iter::once(first).chain(more).map(|path| {
            let cell = row.cell(*path);
            let (standing, word) = cell.verdict.said();
            let why = if cell.why.is_empty() { String::new() } else { format!(": {}", cell.why) };
            (cell, answer(standing, &row.id, format!("{} path {word}{why}", path.word())))
        });
        let (cells, mut answers): (Vec<_>, Vec<_>) = cells.unzip();
        let limits: Vec<&Limit> = self
            .limits
            .iter()
            .filter(|limit| cells.iter().any(|cell| cell.limits.contains(&limit.id)))
            .collect();
        answers.extend(
            limits
                .iter()
                .map(|limit| answer(Standing::Needs, &limit.id, format!("{}; {}", limit.limit, limit.cure))),
        );
        if !more.is_empty() {
            let says =
                "a cell is one path: both together are another configuration, of which there is no run";
            answers.push(answer(Standing::NotVerified, &row.id, says));
        }
        answers
    }
}

impl CellVerdict {
    fn said(self) -> (Standing, &'static str) {
        match self {
            CellVerdict::Works => (Standing::Works, "works"),
            CellVerdict::OwnImage => (Standing::Needs, "works with an image of your own"),
            CellVerdict::NotSupported => (Standing::Refused, "is not supported"),
            CellVerdict::NotVerified => (Standing::NotVerified, "is not verified"),
            CellVerdict::Rejected => (Standing::Refused, "is rejected"),
        }
    }
}

fn floor(row: &Minimum, version: Option<&Release>) -> Answer {
    let what = format!("{} as {}", row.engine.word(), row.configuration.word());
    match (&row.minimum, version) {
        (None, _) => answer(Standing::NotVerified, &row.id, format!("{what}: no version was run")),
        (Some(least), None) => answer(
            Standing::NotVerified,
            &row.id,
            format!("{what} needs {least} or newer, and the version is not known"),
        ),
        (Some(least), Some(version)) if version < least => answer(
            Standing::Refused,
            &row.id,
            format!("{what} needs {least} or newer, not {version}; upgrade before looking for other faults"),
        ),
        (Some(least), Some(version)) => {
            answer(Standing::Works, &row.id, format!("{version} is at or above the floor of {what}, {least}"))
        }
    }
}

/// A flag that the router in front needs of this version.
fn flag(row: &Minimum, question: &Question<'_>) -> Option<Answer> {
    let flag = row.flag.as_ref().filter(|flag| question.router == Some(flag.router.as_str()))?;
    if question.version.as_ref().is_some_and(|version| *version < flag.from) {
        return None;
    }
    let why =
        format!("{} counts prompt tokens by an endpoint that the engine has with it alone", flag.router);
    let given = question.flags.map(|flags| flags.contains(&flag.name));
    Some(match given {
        Some(true) => answer(Standing::Works, &row.id, format!("{} is given", flag.name)),
        Some(false) => answer(
            Standing::Refused,
            &row.id,
            format!("{} is missing: {why}; start the engine with it", flag.name),
        ),
        None => answer(Standing::Needs, &row.id, format!("start the engine with {}: {why}", flag.name)),
    })
}

/// Whether a router was run with it, where rows tell routers apart.
fn router(row: &Minimum, router: Option<&str>) -> Option<Answer> {
    let router = router.filter(|_| !row.routers.is_empty())?;
    Some(match row.routers.iter().any(|known| known == router) {
        true => answer(Standing::Works, &row.id, format!("it was run behind {router}")),
        false => {
            let known = row.routers.join(", ");
            answer(Standing::NotVerified, &row.id, format!("it was run behind {known}, not behind {router}"))
        }
    })
}

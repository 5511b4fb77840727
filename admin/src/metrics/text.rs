//! The Prometheus text format 0.0.4: HELP, TYPE, samples, escapes. Must never know a family.

use std::fmt::{Display, Write};

/// A page that is being written.
#[derive(Default)]
pub struct Page {
    text: String,
    family: &'static str,
}

impl Page {
    /// Begins a family: its samples follow.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str) {
        self.family = name;
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample of the family begun last. `suffix` is `_bucket` and the like, empty for plain families.
    pub fn sample(&mut self, suffix: &str, labels: &[(&str, &str)], value: impl Display) {
        let name = self.family;
        if labels.is_empty() {
            return self.line(format_args!("{name}{suffix} {value}"));
        }
        let labels: Vec<_> = labels.iter().map(|(n, v)| format!("{n}=\"{}\"", escaped(v))).collect();
        self.line(format_args!("{name}{suffix}{{{}}} {value}", labels.join(",")));
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn line(&mut self, line: std::fmt::Arguments) {
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A label value as the format wants it quoted.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

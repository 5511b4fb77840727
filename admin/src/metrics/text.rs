//! The Prometheus text format 0.0.4: HELP, TYPE, samples, escapes. Must never know a family.

use std::fmt::{Arguments, Display, Write};

/// A page that is being written.
#[derive(Default)]
pub struct Page {
    text: String,
    family: &'static str,
    labels: &'static [&'static str],
}

impl Page {
    /// Begins a family: its samples follow.
    pub fn family(&mut self, name: &'static str, kind: &str, help: &str, labels: &'static [&'static str]) {
        (self.family, self.labels) = (name, labels);
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    /// A sample of the family begun last, with the values of its labels.
    pub fn sample(&mut self, values: &[&dyn Display], value: impl Display) {
        self.series("", values, None, &value);
    }

    /// A histogram of the family begun last, whose unit is the second: counts by bucket, one more than there are
    /// `bounds`, which are microseconds.
    pub fn histogram(&mut self, values: &[&dyn Display], bounds: &[u64], counts: &[u64], sum: Option<u64>) {
        let mut below = 0;
        for (at, count) in counts.iter().enumerate() {
            below += count;
            let bound = bounds.get(at).map_or_else(|| "+Inf".into(), |bound| seconds(*bound));
            self.series("_bucket", values, Some(&bound), &below);
        }
        if let Some(sum) = sum {
            self.series("_sum", values, None, &seconds(sum));
        }
        self.series("_count", values, None, &below);
    }

    /// The text.
    pub fn finish(self) -> String {
        self.text
    }

    fn series(&mut self, suffix: &str, values: &[&dyn Display], bound: Option<&str>, value: &dyn Display) {
        debug_assert_eq!(self.labels.len(), values.len(), "{}: {:?}", self.family, self.labels);
        let label = |name: &str, value: &str| format!("{name}=\"{}\"", escaped(value));
        let named = self.labels.iter().zip(values).map(|(name, value)| label(name, &value.to_string()));
        let labels: Vec<String> = named.chain(bound.map(|bound| label("le", bound))).collect();
        let braced = if labels.is_empty() { String::new() } else { format!("{{{}}}", labels.join(",")) };
        let family = self.family;
        self.line(format_args!("{family}{suffix}{braced} {value}"));
    }

    fn line(&mut self, line: Arguments) {
        // Writing to a string can't fail.
        let _ = writeln!(self.text, "{line}");
    }
}

/// A label value as the format wants it quoted.
fn escaped(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// Microseconds as seconds, exact.
pub fn seconds(micros: u64) -> String {
    let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
    text.trim_end_matches('0').trim_end_matches('.').to_string()
}

//! Prometheus text: families, labels and samples in the exposition format.
//! Must never name a metric itself; the kinds do.

use std::fmt::Write;

/// A metrics page under construction.
#[derive(Debug, Default)]
pub struct Metrics {
    text: String,
}

impl Metrics {
    /// Opens a family: its name, type and help.
    pub fn family(&mut self, name: &str, kind: &str, help: &str) -> &mut Self {
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        self
    }

    /// A sample; `labels` is the text between the braces, empty for none.
    pub fn sample(&mut self, name: &str, labels: &str, value: f64) -> &mut Self {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            _ => writeln!(self.text, "{name}{{{labels}}} {value:?}"),
        };
        self
    }

    /// A family of one sample.
    pub fn one(&mut self, name: &str, kind: &str, help: &str, labels: &str, value: f64) -> &mut Self {
        self.family(name, kind, help).sample(name, labels, value)
    }

    /// The page.
    pub fn finish(self) -> String {
        self.text
    }
}

/// A label value with the three characters escaped that the format asks for.
pub fn escape(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_and_labels() {
        let mut page = Metrics::default();
        page.one("x:y", "gauge", "Help.", "", 2.0)
            .family("z", "counter", "More.")
            .sample("z", "a=\"b\"", 1.0);
        let text = page.finish();
        assert_eq!(
            text,
            "# HELP x:y Help.\n# TYPE x:y gauge\nx:y 2\n# HELP z More.\n# TYPE z counter\nz{a=\"b\"} 1.0\n"
        );
        assert_eq!(escape("a\"b\\"), "a\\\"b\\\\");
    }
}

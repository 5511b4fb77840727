//! The part of the Prometheus text format that gauges need: names, labels, values. Owns reading one page without a copy;
//! a line that is wrong is passed over, so that one odd metric hides no other.

/// One line with a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::engine) struct Sample<'a> {
    /// The metric's name.
    pub name: &'a str,
    /// What stands between the braces, as written.
    labels: &'a str,
    /// The value; a timestamp behind it is left out.
    pub value: f64,
}

/// The samples of a page, in order. A page that is not UTF-8 has none behind the fault.
pub(in crate::engine) fn samples(page: &[u8]) -> impl Iterator<Item = Sample<'_>> {
    let text = match std::str::from_utf8(page) {
        Ok(text) => text,
        Err(fault) => std::str::from_utf8(&page[..fault.valid_up_to()]).unwrap_or_default(),
    };
    text.lines().filter_map(sample)
}

fn sample(line: &str) -> Option<Sample<'_>> {
    let line = line.trim_start();
    let end = line.find([' ', '\t', '{'])?;
    let (name, rest) = line.split_at(end);
    if name.starts_with('#') {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(inside) => inside.split_at_checked(labels_end(inside)?)?,
        None => ("", rest),
    };
    let value = rest.strip_prefix('}').unwrap_or(rest).split_ascii_whitespace().next()?;
    Some(Sample { name, labels, value: value.parse().ok()? })
}

/// Where the closing brace is: the first outside of quotes.
fn labels_end(inside: &str) -> Option<usize> {
    let (mut quoted, mut escaped) = (false, false);
    inside.bytes().position(|byte| {
        let ends = byte == b'}' && !quoted;
        quoted ^= byte == b'"' && !escaped;
        escaped = byte == b'\\' && quoted && !escaped;
        ends
    })
}

impl<'a> Sample<'a> {
    /// The value of a label as written, escapes and all.
    pub(in crate::engine) fn label(&self, name: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        loop {
            let (key, after) = rest.split_once("=\"")?;
            let end = value_end(after)?;
            let value = after.get(..end)?;
            if key.trim_start_matches([',', ' ']).trim_end() == name {
                return Some(value);
            }
            rest = after.get(end + 1..)?;
        }
    }
}

/// Where the closing quote is.
fn value_end(value: &str) -> Option<usize> {
    let mut escaped = false;
    value.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_form() {
        let page = b"# HELP a text\n# TYPE a gauge\na 1\n a{x=\"y\"} 2.5e1 1700000000\nb{x=\"}\\\"{ \",z=\"w\",} +Inf\nc\nd x\n\
            e{x=\"y\n{} 3\nf{} 4\r\ng\t5";
        let all: Vec<(&str, f64)> = samples(page).map(|sample| (sample.name, sample.value)).collect();
        assert_eq!(all, [("a", 1.0), ("a", 25.0), ("b", f64::INFINITY), ("", 3.0), ("f", 4.0), ("g", 5.0)]);
        let odd = samples(page).nth(2).expect("b");
        assert_eq!((odd.label("x"), odd.label("z"), odd.label("y")), (Some("}\\\"{ "), Some("w"), None));
        assert_eq!(samples(b"a 1\nb \xff 2\nc 3").count(), 1);
    }
}

//! What the machine is. Owns where each fact is read and the advice drawn from it; must never guess what a
//! file does not say.

use super::{Gate, Verdict};
use serde::Serialize;

/// Descriptors that a gateway with some thousand connections needs.
const FILES_MIN: u64 = 8192;
/// Clock sources that are read without a system call.
const FAST_CLOCKS: [&str; 4] = ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

/// One fact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact {
    /// What.
    pub name: &'static str,
    /// As the kernel tells it; "unknown" if it does not.
    pub value: String,
}

/// All facts.
pub fn facts() -> Vec<Fact> {
    let cores = std::thread::available_parallelism().map(|n| n.to_string()).ok();
    let memory = read("/proc/meminfo");
    let limits = read("/proc/self/limits");
    let cpu = read("/proc/cpuinfo").and_then(|text| after(&text, "model name"));
    [
        ("kernel", read("/proc/sys/kernel/osrelease")),
        ("cpu", cpu),
        ("cores usable", cores),
        ("memory", memory.as_deref().and_then(|text| after(text, "MemTotal"))),
        ("memory available", memory.as_deref().and_then(|text| after(text, "MemAvailable"))),
        ("locked memory limit", limits.as_deref().and_then(|text| limit(text, "Max locked memory"))),
        ("open files limit", limits.as_deref().and_then(|text| limit(text, "Max open files"))),
        ("kernel.io_uring_disabled", read("/proc/sys/kernel/io_uring_disabled")),
        ("clock source", read("/sys/devices/system/clocksource/clocksource0/current_clocksource")),
    ]
    .into_iter()
    .map(|(name, value)| Fact { name, value: value.unwrap_or_else(|| "unknown".into()) })
    .collect()
}

/// Advice drawn from `facts`.
pub fn advice(facts: &[Fact]) -> Vec<Gate> {
    let value = |name| facts.iter().find(|f| f.name == name).map_or("", |f| f.value.as_str());
    vec![open_files(value("open files limit")).advice(), clock(value("clock source")).advice()]
}

fn open_files(limit: &str) -> Gate {
    let name = "open files";
    match limit.parse::<u64>() {
        Ok(files) if files < FILES_MIN => Gate::not_passed(
            name,
            Verdict::Fail,
            format!("{files} are fewer than {FILES_MIN}, and each request in flight takes two"),
            "raise it with ulimit -n or LimitNOFILE=",
        ),
        Ok(files) => Gate::pass(name, files.to_string()),
        Err(_) if limit == "unlimited" => Gate::pass(name, limit),
        Err(_) => Gate::not_passed(name, Verdict::NotRun, "the limit is not known", ""),
    }
}

fn clock(source: &str) -> Gate {
    let name = "clock read without a system call";
    match source {
        source if FAST_CLOCKS.contains(&source) => Gate::pass(name, source),
        "unknown" => Gate::not_passed(name, Verdict::NotRun, "the clock source is not known", ""),
        slow => Gate::not_passed(
            name,
            Verdict::Fail,
            format!("the clock source {slow} may cost a system call"),
            "use tsc or kvm-clock if the machine has it",
        ),
    }
}

fn read(path: &str) -> Option<String> {
    std::fs::read_to_string(path).ok().map(|text| text.trim().to_string())
}

/// The value of `name: value` or `name<tab>: value`.
fn after(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim().to_string())
}

/// The soft limit in a line of `/proc/self/limits`.
fn limit(text: &str, name: &str) -> Option<String> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next().map(String::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_proc_are_read() {
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   4096   files\n";
        assert_eq!(limit(limits, "Max open files"), Some("1024".into()));
        assert_eq!(limit(limits, "Max locked memory"), None);
        assert_eq!(after("MemTotal:    42 kB\n", "MemTotal"), Some("42 kB".into()));
        assert_eq!(after("model name\t: A B\n", "model name"), Some("A B".into()));
    }

    #[test]
    fn advice_names_cause_and_cure_and_an_unknown_fact_is_not_run() {
        let fact = |name, value: &str| Fact { name, value: value.into() };
        let poor = advice(&[fact("open files limit", "1024"), fact("clock source", "hpet")]);
        assert!(poor.iter().all(|g| g.verdict == Verdict::Fail && !g.required && !g.cure.is_empty()));
        let good = advice(&[fact("open files limit", "65536"), fact("clock source", "tsc")]);
        assert!(good.iter().all(|g| g.verdict == Verdict::Pass));
        let unknown = advice(&[fact("open files limit", "unknown"), fact("clock source", "unknown")]);
        assert!(unknown.iter().all(|g| g.verdict == Verdict::NotRun));
    }
}

//! What is installed beside the binary: the unit, the layouts of cores, the script that steers interrupts. Owns a
//! copy of the few files of /proc and /sys that the script reads; must never touch the machine's own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("admin/systemd")
}

fn read(name: &str) -> String {
    fs::read_to_string(folder().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// A machine of four cores with one card of three interrupts, in a folder of its own.
struct Machine(PathBuf);

impl Machine {
    fn new(name: &str) -> Machine {
        let root = std::env::temp_dir().join(format!("warmpath-irqs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let machine = Machine(root);
        (0..4).for_each(|core| machine.make(&format!("sys/devices/system/cpu/cpu{core}/online"), "1"));
        for irq in [9, 10, 30] {
            machine.make(&format!("sys/class/net/eth0/device/msi_irqs/{irq}"), "msi");
            machine.make(&format!("proc/irq/{irq}/smp_affinity_list"), "0-3");
        }
        machine.make("sys/class/net/lo/mtu", "1");
        machine
    }

    fn make(&self, path: &str, text: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    fn steer(&self, arguments: &[&str]) -> Output {
        let state = self.0.join("state");
        Command::new("bash")
            .arg(folder().join("steer-irqs"))
            .args(["--root".as_ref(), self.0.as_os_str(), "--state".as_ref(), state.as_os_str()])
            .args(arguments)
            .output()
            .expect("bash runs")
    }

    fn affinity(&self) -> [String; 3] {
        let read = |irq| fs::read_to_string(self.0.join(format!("proc/irq/{irq}/smp_affinity_list")));
        [9, 10, 30].map(|irq| read(irq).expect("an interrupt").trim().to_string())
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn interrupts_are_only_printed_unless_it_is_told_to_apply() {
    let machine = Machine::new("print");
    let printed = machine.steer(&["--device", "eth0", "--cores", "0,2"]);
    assert!(printed.status.success(), "{}", text(&printed.stderr));
    assert!(text(&printed.stdout).contains("irq 9: 0-3 -> 0\nirq 10: 0-3 -> 2\nirq 30: 0-3 -> 0\n"));
    assert!(text(&printed.stdout).contains("nothing was changed"));
    assert_eq!(machine.affinity(), ["0-3", "0-3", "0-3"]);
    assert!(!machine.0.join("state").exists());
}

#[test]
fn what_was_there_comes_back_however_often_it_was_applied() {
    let machine = Machine::new("apply");
    for cores in ["0-1", "3"] {
        assert!(machine.steer(&["--device", "eth0", "--cores", cores, "--apply"]).status.success());
    }
    assert_eq!(machine.affinity(), ["3", "3", "3"]);
    let kept = machine.0.join("state/eth0");
    let restored = machine.steer(&["--restore", kept.to_str().expect("a path")]);
    assert!(restored.status.success(), "{}", text(&restored.stderr));
    assert_eq!(machine.affinity(), ["0-3", "0-3", "0-3"]);
}

#[test]
fn wrong_words_change_nothing_and_name_the_cure() {
    let machine = Machine::new("wrong");
    machine.make("broken", "9 rm\n");
    let broken = machine.0.join("broken");
    let cases: [(&[&str], &str); 8] = [
        (&["--cores", "0"], "--device is missing"),
        (&["--device", "eth0"], "--cores is missing"),
        (&["--device", "eth7", "--cores", "0", "--apply"], "there are: eth0 lo"),
        (&["--device", "lo", "--cores", "0", "--apply"], "no interrupts of its own"),
        (&["--device", "eth0", "--cores", "0-9", "--apply"], "core 4, which this machine has not"),
        (&["--device", "eth0", "--cores", "2-1", "--apply"], "runs backwards"),
        (&["--device", "eth0", "--cores", "$(id)", "--apply"], "give cores like 0-1,4"),
        (&["--restore", broken.to_str().expect("a path")], "is not a file that --apply wrote"),
    ];
    for (arguments, told) in cases {
        let done = machine.steer(arguments);
        assert_eq!(done.status.code(), Some(2), "{arguments:?}");
        assert!(text(&done.stderr).contains(told), "{arguments:?}: {}", text(&done.stderr));
        assert_eq!(machine.affinity(), ["0-3", "0-3", "0-3"], "{arguments:?}");
    }
}

/// Every flag that unit and layouts give `warmpath serve`.
fn flags() -> BTreeSet<String> {
    let names = ["warmpath.service", "warmpath.default", "pinned-8-cores.conf", "pinned-32-cores.conf"];
    let texts = names.iter().chain(&["pinned-64-cores.conf"]).map(|name| read(name));
    let lines = |text: String| {
        let given = |line: &&str| line.contains("ExecStart=") || line.contains("WARMPATH_FLAGS=");
        text.lines().filter(given).map(String::from).collect::<Vec<_>>()
    };
    let words = texts.flat_map(lines).flat_map(|line| {
        line.split([' ', '"', '='])
            .filter(|word| word.starts_with("--"))
            .map(String::from)
            .collect::<Vec<_>>()
    });
    words.collect()
}

#[test]
fn unit_and_layouts_give_flags_that_serve_takes() {
    let help =
        Command::new(env!("CARGO_BIN_EXE_warmpath")).args(["serve", "--help"]).output().expect("it runs");
    let (help, flags) = (text(&help.stdout), flags());
    assert!(flags.len() >= 8, "{flags:?}");
    for flag in &flags {
        assert!(help.contains(&format!("{flag} ")), "{flag} is no flag of serve");
    }
}

/// Numbers of the cores in a list like `2-5,8`.
fn cores(list: &str) -> Vec<usize> {
    let number = |text: &str| text.parse::<usize>().expect("a core");
    let part = |part: &str| match part.split_once('-') {
        Some((from, to)) => (number(from)..=number(to)).collect::<Vec<_>>(),
        None => vec![number(part)],
    };
    list.split(',').flat_map(part).collect()
}

#[test]
fn layouts_give_each_core_to_one_thread_and_leave_some_to_the_system() {
    for (name, all) in
        [("pinned-8-cores.conf", 8), ("pinned-32-cores.conf", 32), ("pinned-64-cores.conf", 64)]
    {
        let text = read(name);
        let words: Vec<&str> = text.split([' ', '"', '=', '\n']).collect();
        let after = |flag: &str| words[words.iter().position(|word| *word == flag).expect("the flag") + 1];
        let of = ["--cores", "--event-core", "--token-core-list"].map(|flag| cores(after(flag)));
        assert_eq!(of[0].len(), after("--shards").parse().expect("a number"), "{name}");
        assert_eq!(of[2].len(), after("--token-cores").parse().expect("a number"), "{name}");
        let used: Vec<usize> = of.concat();
        let distinct: BTreeSet<usize> = used.iter().copied().collect();
        assert_eq!(distinct.len(), used.len(), "{name}: a core has two threads");
        assert!(used.iter().all(|core| (2..all).contains(core)), "{name}: 0 and 1 are the system's");
    }
}

/// systemd's own reading of the unit, where it is installed.
#[test]
fn systemd_reads_the_unit() {
    let known = Command::new("systemd-analyze").arg("--version").output();
    if !known.is_ok_and(|done| done.status.success()) {
        return println!("not_run: systemd-analyze is not installed");
    }
    let unit = std::env::temp_dir().join(format!("warmpath-unit-{}", std::process::id()));
    fs::create_dir_all(&unit).expect("made");
    // It checks that the binary is there.
    let text = read("warmpath.service").replace("/usr/bin/warmpath", env!("CARGO_BIN_EXE_warmpath"));
    let file = unit.join("warmpath.service");
    fs::write(&file, text).expect("written");
    let read =
        Command::new("systemd-analyze").args(["verify", "--man=no"]).arg(&file).output().expect("it runs");
    let _ = fs::remove_dir_all(&unit);
    let told = format!("{}{}", self::text(&read.stdout), self::text(&read.stderr));
    let own: Vec<&str> = told.lines().filter(|line| line.contains("warmpath")).collect();
    assert!(own.is_empty(), "{own:?}");
}

//! Vector files, and the proof that nothing in them is passed over: every member of a file must be taken, every
//! member of a case must be known, every case ends as checked or declined, and both are counted.

use serde_json::Value;
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;
use warmpath_core::engine::Decline;

/// How a case ended; one that fails panics.
pub enum Outcome {
    Checked,
    Declined(Decline),
}

/// One `*.json` file of vectors.
pub struct File {
    name: &'static str,
    pub root: Value,
    taken: RefCell<BTreeSet<String>>,
    counts: RefCell<(usize, usize)>,
}

pub fn text(name: &str) -> String {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|fault| panic!("{}: {fault}", path.display()))
}

/// The lines of a capture.
pub fn lines(name: &str) -> Vec<Value> {
    text(name).lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

impl File {
    pub fn open(name: &'static str) -> File {
        let root = serde_json::from_str(&text(name)).unwrap();
        let taken = ["note", "engine", "version"].map(String::from).into();
        File { name, root, taken: RefCell::new(taken), counts: RefCell::default() }
    }

    pub fn version(&self) -> &str {
        self.root["version"].as_str().unwrap()
    }

    /// A member of the file, from now on accounted for.
    pub fn take(&self, member: &str) -> &Value {
        self.taken.borrow_mut().insert(member.into());
        &self.root[member]
    }

    /// Puts each case of `member` to `check`. Cases must have no member beside `known`.
    pub fn cases(&self, member: &str, known: &[&str], mut check: impl FnMut(&Value) -> Outcome) {
        for case in self.take(member).as_array().unwrap() {
            for name in case.as_object().unwrap().keys() {
                assert!(known.contains(&name.as_str()), "{}: no test knows {member}.{name}", self.name);
            }
            match check(case) {
                Outcome::Checked => self.counts.borrow_mut().0 += 1,
                Outcome::Declined(reason) => {
                    println!("{}: {} declined: {reason}", self.name, case["id"]);
                    self.counts.borrow_mut().1 += 1;
                }
            }
        }
    }

    /// Every member must have been taken, and as many cases as said have been checked and declined.
    pub fn finish(self, checked: usize, declined: usize) {
        let taken = self.taken.borrow();
        for member in self.root.as_object().unwrap().keys() {
            assert!(taken.contains(member), "{}: no test covers {member}", self.name);
        }
        let counts = *self.counts.borrow();
        println!("{}: {} cases checked, {} declined, 0 left", self.name, counts.0, counts.1);
        assert_eq!(counts, (checked, declined), "{}", self.name);
    }
}

pub fn hex(text: &Value) -> Vec<u8> {
    let text = text.as_str().unwrap();
    (0..text.len() / 2).map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap()).collect()
}

pub fn hex32(text: &Value) -> [u8; 32] {
    hex(text).try_into().unwrap()
}

pub fn u32s(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|id| u32::try_from(id.as_u64().unwrap()).unwrap()).collect()
}

pub fn u64s(list: &Value) -> Vec<u64> {
    list.as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

pub fn i64s(list: &Value) -> Vec<i64> {
    list.as_array().unwrap().iter().map(|id| id.as_i64().unwrap()).collect()
}

pub fn texts(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|text| text.as_str().unwrap()).collect()
}

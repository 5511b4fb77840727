//! The store on a disk that stops at any step, by a kill or by a power loss.

use super::*;
use crate::fake::disk::MemoryDisk;

fn snapshot(generation: u64) -> Snapshot {
    Snapshot { generation, rules: vec![json!({"n": generation})], ..Snapshot::default() }
}

/// A change as [`crate::gateway`] makes it; true when it may be acknowledged.
fn change(store: &Store, generation: u64) -> bool {
    store.prepare(&snapshot(generation)).and_then(|()| store.commit()).is_ok()
}

fn generation(found: &Found) -> u64 {
    match found {
        Found::Nothing => 0,
        Found::Current(s) | Found::Interrupted(s) => s.generation,
        Found::Damaged { cause, .. } => panic!("a crash made damage: {cause}"),
    }
}

#[test]
fn what_was_committed_is_read_back() {
    let disk = MemoryDisk::default();
    let store = Store::on(Box::new(disk.clone()));
    assert_eq!(store.load(), Ok(Found::Nothing));
    assert!(change(&store, 1) && change(&store, 2));
    assert_eq!(store.load(), Ok(Found::Current(snapshot(2))));
}

#[test]
fn a_stop_after_any_step_leaves_the_old_or_the_new_and_never_loses_an_acknowledged_one() {
    for before in 0..3 {
        for steps in 0..12 {
            for survives in ["everything", "what was synced", "names that were not synced"] {
                let disk = MemoryDisk::default();
                let store = Store::on(Box::new(disk.clone()));
                (1..=before).for_each(|g| assert!(change(&store, g)));
                disk.stop_after(steps);
                let acknowledged = change(&store, before + 1);
                disk.restart(survives);
                let found = generation(&store.load().unwrap());
                let allowed = if acknowledged { before + 1..=before + 1 } else { before..=before + 1 };
                assert!(allowed.contains(&found), "{before} {steps} {survives}: {found}");
                assert!(change(&store, 9), "the next change works");
                assert_eq!(generation(&store.load().unwrap()), 9);
            }
        }
    }
}

#[test]
fn a_full_disk_refuses_before_anything_happened() {
    let disk = MemoryDisk::default();
    let store = Store::on(Box::new(disk.clone()));
    assert!(change(&store, 1));
    disk.fail_once_at(0);
    assert_eq!(store.prepare(&snapshot(2)).unwrap_err().kind(), io::ErrorKind::StorageFull);
    assert_eq!(store.load(), Ok(Found::Current(snapshot(1))));
    assert_eq!(disk.names(), ["snapshot.json"]);
}

#[test]
fn a_damaged_snapshot_is_told_from_a_foreign_one() {
    let disk = MemoryDisk::default();
    let store = Store::on(Box::new(disk.clone()));
    assert!(change(&store, 1) && change(&store, 2));
    let whole = disk.read(&store.current()).unwrap();
    disk.write(&store.current(), &whole[..whole.len() / 2]).unwrap();
    let Ok(Found::Damaged { previous, cause }) = store.load() else { panic!("damage was not seen") };
    assert_eq!(previous, Some(snapshot(1)));
    assert!(cause.contains("snapshot.json"), "{cause}");
    store.quarantine(7).unwrap();
    assert!(disk.names().contains(&"snapshot.json.damaged-7".to_string()));
    disk.write(&store.current(), br#"{"kind":"warmpath-snapshot","schema":"2.0"}"#).unwrap();
    assert!(store.load().unwrap_err().contains("schema 2.0"));
}

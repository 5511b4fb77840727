//! Rows I1 to I5 of the figures: what the index costs. `cargo bench -p warmpath-kvindex --bench index --
//! [ROW…] [long] [alone] [--operations N]` measures at full size (8 M blocks, pinned to nothing, one line a figure);
//! `long` takes more rounds, `alone` leaves out of I1 and I2 what needs two cores, N (as 2e8) is the churn of I5. Under `cargo test` the same code runs small and only its own
//! consistency is checked.
#![allow(clippy::unwrap_used)] // a bench that cannot start has nothing to tell

#[path = "index/churn.rs"]
mod churn;
#[path = "index/readers.rs"]
mod readers;
#[path = "index/stream.rs"]
mod stream;
#[path = "index/writers.rs"]
mod writers;

use std::time::Instant;

/// How large a run is.
#[derive(Clone, Copy)]
pub struct Size {
    /// Distinct blocks of the table.
    pub blocks: usize,
    /// Operations of one timed phase.
    pub operations: usize,
    /// Times a phase is repeated; the median is told.
    pub rounds: usize,
    /// One thread at a time.
    pub alone: bool,
    /// Operations of the churn row.
    pub churn: usize,
}

/// Measures one row and prints it.
type Row = fn(Size);

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let full = arguments.iter().any(|argument| argument == "--bench");
    let long = arguments.iter().any(|argument| argument == "long");
    let alone = arguments.iter().any(|argument| argument == "alone");
    let rounds = if long { 9 } else { 3 };
    let size = match full {
        false => Size { blocks: 40_000, operations: 100_000, rounds: 1, alone, churn: 200_000 },
        true => Size { blocks: 8_000_000, operations: 10_000_000, rounds, alone, churn: churn(&arguments) },
    };
    let rows: [(&str, Row); 5] = [
        ("I1", writers::rates),
        ("I2", readers::rates),
        ("I3", readers::bytes),
        ("I4", writers::visibility),
        ("I5", churn::memory),
    ];
    let asked = |row: &str| arguments.iter().any(|argument| argument == row);
    let any = rows.iter().any(|(row, _)| asked(row));
    for (row, run) in rows {
        if !any || asked(row) {
            let start = Instant::now();
            run(size);
            println!("{row} took {:.1} s", start.elapsed().as_secs_f64());
        }
    }
}

/// What `--operations` says, or 10^8.
fn churn(arguments: &[String]) -> usize {
    let Some(at) = arguments.iter().position(|argument| argument == "--operations") else {
        return 100_000_000;
    };
    let given = arguments.get(at + 1).and_then(|number| number.parse::<f64>().ok());
    let churn = given.filter(|number| *number >= 1e4).expect("--operations takes a number from 1e4 on");
    churn as usize
}

//! `nvme-kv simulate`: runs of the simulator, seed after seed.

use std::error::Error;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use nvme_kv_simulator::{Totals, silence};

/// How often the totals so far are printed.
const PROGRESS: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct Simulate {
    /// Seconds to run seed after seed; without it one seed is run
    #[arg(long)]
    seconds: Option<u64>,
    /// First seed; without it the clock chooses one
    #[arg(long)]
    seed: Option<u64>,
}

impl Simulate {
    pub(crate) fn run(&self) -> Result<(), Box<dyn Error>> {
        silence();
        let first = self.seed.unwrap_or_else(seed_from_clock);
        let start = Instant::now();
        let duration = Duration::from_secs(self.seconds.unwrap_or(0));
        let mut totals = Totals::default();
        let mut printed = start;
        let mut seed = first;
        loop {
            totals.add(&nvme_kv_simulator::simulate(seed)?);
            if start.elapsed() >= duration {
                break;
            }
            if printed.elapsed() >= PROGRESS {
                printed = Instant::now();
                println!("{} s: {totals}", start.elapsed().as_secs());
            }
            seed = seed.wrapping_add(1);
        }
        println!("seeds {first} to {seed}, no violation: {totals}");
        Ok(())
    }
}

/// Short, so that it is easily typed again.
fn seed_from_clock() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    now.as_micros() as u64 % 1_000_000_000
}

//! A few hundred seeds; `nvme-kv simulate` runs more of them.

use nvme_kv_simulator::{Totals, silence, simulate};

const SEEDS: u64 = 300;

#[test]
fn nothing_acknowledged_is_lost_and_nothing_stale_is_returned() {
    silence();
    let first = std::env::var("MNKV_SEED").ok().map(|text| text.parse().expect("a number"));
    let seeds = first.map_or(1..=SEEDS, |seed| seed..=seed);
    let mut totals = Totals::default();
    for seed in seeds {
        match simulate(seed) {
            Ok(run) => totals.add(&run),
            Err(violation) => panic!("{violation}\nset MNKV_SEED={seed} to repeat"),
        }
    }
    println!("{totals}");
}

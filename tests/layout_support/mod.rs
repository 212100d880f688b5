//! One seed for everything random in a test: printed, and taken from `MNKV_SEED` when set.

/// The seed of this run; it shows in the output of a failing test.
pub(crate) fn seed() -> u64 {
    let seed = match std::env::var("MNKV_SEED") {
        Ok(text) => text.parse().expect("MNKV_SEED is a decimal number"),
        Err(_) => {
            let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
            now.map_or(1, |since| since.as_nanos() as u64)
        }
    };
    println!("MNKV_SEED={seed}");
    seed
}

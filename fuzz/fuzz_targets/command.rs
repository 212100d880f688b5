//! A passthrough structure from a hostile host.
#![no_main]

use libfuzzer_sys::fuzz_target;
use nvme_kv_command_set::PassthroughCommand;

fuzz_target!(|bytes: [u8; 72]| {
    let command = PassthroughCommand::from_bytes(&bytes);
    assert_eq!(command.to_bytes(), bytes);
    match command.decode() {
        Ok(meaning) => {
            let again = PassthroughCommand::new(&meaning, command.nsid, command.timeout_ms);
            assert_eq!(again.decode(), Ok(meaning));
        }
        Err(error) => assert!(!error.status().is_success()),
    }
});

//! One owner of a namespace on a real kernel, in this process and another, whatever node names it.
//! Needs the guest of `kernel_tests/run`; skipped where `MNKV_KERNEL_NODE` is not set.

mod executor_bench;
mod kernel_support;
mod support;

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Stdio};

use kernel_support::served::Served;
use kernel_support::{both_transports, name_of};
use mooncake_nvme_kv::ErrorCode;
use mooncake_nvme_kv::backend::{Backend, ObjectToLoad, ObjectToStore};
use mooncake_nvme_kv::config::{Access, Config, Transport};
use mooncake_nvme_kv::device::Destination;
use nvme_kv_emulator::{Counts, Personality};
use support::{Rig, payload};

const PATH: &str = "mem:kernel-ownership";
/// Tells the other process, which is this test again, what to open.
const OTHER: &str = "MNKV_TEST_OTHER_PROCESS";
/// Begins what it has to say.
const SAYS: &str = "other process: ";

fn through(node: &str, transport: Transport) -> Config {
    let mut config = Config::default();
    config.connector.device_path = node.to_owned();
    config.connector.transport = transport;
    config.connector.queue_depth = 8;
    config
}

/// The other process: says how opening ended, and owns until its standard input ends.
fn own_until_told(node: &str, transport: Transport) {
    match Backend::open(&through(node, transport)) {
        // The test harness has written the beginning of a line.
        Err(error) => println!("\n{SAYS}{error}"),
        Ok(_owner) => {
            println!("\n{SAYS}it owns");
            std::io::stdin().read_to_end(&mut Vec::new()).expect("a pipe");
        }
    }
}

/// This test in another process.
struct OtherProcess {
    child: Child,
    /// What it writes is read as long as it lives, lest it dies of that.
    lines: Lines<BufReader<ChildStdout>>,
}

impl OtherProcess {
    fn start(test: &str, node: &str) -> OtherProcess {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .env(OTHER, node)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the child starts");
        let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
        OtherProcess { child, lines }
    }

    /// How opening the namespace ended there.
    fn says(&mut self) -> String {
        let said = |line: std::io::Result<String>| Some(line.ok()?.strip_prefix(SAYS)?.to_owned());
        self.lines.find_map(said).expect("it says how opening ended")
    }

    /// Waits until it has ended by itself.
    fn wait(mut self) {
        self.lines.for_each(drop);
        assert!(self.child.wait().expect("it ends").success());
    }

    /// Ends it without time to give anything back.
    fn kill(mut self) {
        self.child.kill().expect("it runs");
        self.child.wait().expect("it ends");
    }
}

/// Refused, with who has it.
#[track_caller]
fn is_refused(config: &Config, holder: u32) {
    let error = Backend::open(config).expect_err("somebody else has it");
    assert_eq!(error.code(), ErrorCode::FileLockFail, "{error}");
    assert!(error.message().contains(&format!("process {holder} (")), "{error}");
    assert!(error.message().contains(&config.connector.device_path), "{error}");
    assert!(error.message().contains("MOONCAKE_NVME_KV_ACCESS=read_only"), "{error}");
}

fn a_namespace_has_one_owner(transport: Transport) {
    if let Ok(node) = std::env::var(OTHER) {
        return own_until_told(&node, transport);
    }
    let test = format!("a_namespace_on_{}_has_one_owner", name_of(transport));
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    let config = through(&served.node, transport);
    let block = served.node.replace("/ng", "/nvme");
    let controller = block.rsplit_once('n').expect("it ends in nY").0;
    let owner = Backend::open(&config).expect("nobody has it");
    for other in [Transport::IoUring, Transport::Ioctl] {
        is_refused(&through(&served.node, other), std::process::id());
        is_refused(&through(controller, other), std::process::id());
    }
    let mut other = OtherProcess::start(&test, &served.node);
    let said = other.says();
    other.wait();
    assert!(said.contains(ErrorCode::FileLockFail.name()), "{said}");
    assert!(said.contains(&format!("process {} (", std::process::id())), "{said}");

    owner.close();
    let mut other = OtherProcess::start(&test, &served.node);
    assert_eq!(other.says(), "it owns");
    is_refused(&config, other.child.id());
    is_refused(&through(controller, transport), other.child.id());
    other.kill();
    let owner = Backend::open(&config).expect("its holder has died");
    drop(owner);
    Backend::open(&config).expect("it was given back");
}

fn others_may_read_beside_the_owner(transport: Transport) {
    let Some(served) = Served::new(PATH, Personality::default()) else { return };
    // For the namespace behind the node.
    let rig = Rig::at(PATH, Personality::default(), |config| served.configure(config, transport));
    let owner = Backend::open(&rig.config).expect("nobody has it");
    let bytes = payload(600_000, 1);
    let put = |backend: &Backend, key: &[u8]| {
        let objects = [ObjectToStore { key, slices: &[&bytes] }];
        Ok(backend.offload(&objects, &mut |_| Ok(()))?.results.remove(0)?.already)
    };
    assert_eq!(put(&owner, b"before"), Ok(false));
    let mut config = rig.config.clone();
    config.lifecycle.access = Access::ReadOnly;
    let reader = Backend::open(&config).expect("it takes nothing");
    let second = Backend::open(&config).expect("there may be many");
    assert_eq!(reader.scan(&mut |_| Ok(())).expect("it is listed").objects, 1);
    assert_eq!(put(&owner, b"after"), Ok(false));
    assert!(!reader.index_is_complete(), "the owner goes on");
    for reader in [&reader, &second] {
        for key in [b"before".as_slice(), b"after"] {
            assert!(reader.exists(key).expect("the device answers"));
            let mut memory = vec![0; bytes.len()];
            let destination = Destination::new(&mut memory);
            let loaded = reader.load(vec![ObjectToLoad { key, destination }]);
            loaded.expect("it is open").remove(0).expect("it is there");
            assert!(memory == bytes, "wrong bytes");
        }
    }
    println!("data checks: {} 4", name_of(transport));
    assert!(!reader.exists(b"missing").expect("the device answers"));

    // The kernel may identify the namespace when it likes.
    let received = || Counts { identify: 0, ..rig.namespace.counts() };
    let before = received();
    let refused = [
        put(&reader, b"before").expect_err("it may only read"),
        put(&reader, b"new").expect_err("it may only read"),
        reader.remove(b"before").expect_err("it may only read"),
        reader.remove_all().expect_err("it may only read"),
        reader.sweep(false).expect_err("it may only read"),
        reader.evict_above(0.1, 0.0, &mut |_| Ok(())).expect_err("it may only read"),
    ];
    for error in refused {
        assert_eq!(error.code(), ErrorCode::NotSupported, "{error}");
        assert!(error.message().contains("read_only"), "{error}");
    }
    assert_eq!(received(), before, "no command was sent");
    assert_eq!(reader.sweep(true).expect("a dry run only reads").orphans, 0);
    is_refused(&rig.config, std::process::id());
    owner.close();
    Backend::open(&rig.config).expect("readers keep nobody away");
}

both_transports! {
    a_namespace_has_one_owner =>
        a_namespace_on_io_uring_has_one_owner,
        a_namespace_on_ioctl_has_one_owner;
    others_may_read_beside_the_owner =>
        others_may_read_by_io_uring_beside_the_owner,
        others_may_read_by_ioctl_beside_the_owner;
}

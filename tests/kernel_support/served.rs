//! A target inside of this process: the test reaches the namespace behind it.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;

use mooncake_nvme_kv::config::{Config, Transport};
use nvme_kv_emulator::target::{Options, Target};
use nvme_kv_emulator::{Namespace, Personality};

use super::{attach, detach, in_guest};

const NQN: &str = "nqn.2014-08.org.nvmexpress:uuid:6d6e6b76-0000-4000-8000-736572766564";

/// A namespace of this process that this kernel has attached.
pub(crate) struct Served {
    pub(crate) namespace: Arc<Namespace>,
    pub(crate) target: Arc<Target>,
    /// Its generic character device.
    pub(crate) node: String,
    path: String,
    server: Option<JoinHandle<()>>,
}

impl Served {
    /// Serves and attaches the namespace at `path`; `None` outside of the guest.
    pub(crate) fn new(path: &str, personality: Personality) -> Option<Served> {
        if !in_guest() {
            return None;
        }
        let namespace = nvme_kv_emulator::open_with(path, personality).expect("namespace opens");
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let target = Target::bind(address, Arc::clone(&namespace), Options { nqn: NQN.to_owned() });
        let target = Arc::new(target.expect("there is a free port"));
        let serving = Arc::clone(&target);
        let serve = move || serving.run().expect("it accepts connections");
        let server = Some(std::thread::spawn(serve));
        let node = attach(target.local_addr(), NQN);
        Some(Served { namespace, target, node, path: path.to_owned(), server })
    }

    /// Lets backends reach the namespace through its node.
    pub(crate) fn configure(&self, config: &mut Config, transport: Transport) {
        config.connector.device_path = self.node.clone();
        config.connector.transport = transport;
        // The ioctl transport has a thread for each command in flight, and the tests open
        // hundreds of backends on one processor.
        config.connector.queue_depth = 8;
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        detach(NQN);
        self.target.shutdown();
        if let Some(server) = self.server.take() {
            // A panic of its own would be the test's second one.
            let _ = server.join();
        }
        if let Some(name) = self.path.strip_prefix("mem:") {
            nvme_kv_emulator::forget(name);
        }
    }
}

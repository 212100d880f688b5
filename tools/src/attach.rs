//! `nvme-kv attach` and `detach`: what the Linux kernel needs to be told.

use std::{
    error::Error,
    fs::{self, OpenOptions},
    io::{self, Read, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use clap::Args;

use crate::{
    DEFAULT_NQN,
    sysfs::{controller_of, controllers_of, delete_file, nodes_of},
};

const FABRICS: &str = "/dev/nvme-fabrics";
const SYSFS: &str = "/sys";

/// The node appears when the kernel has identified the namespace, which it does
/// after it has answered.
const NODE_TIME: Duration = Duration::from_secs(10);
const NODE_INTERVAL: Duration = Duration::from_millis(5);

#[derive(Args)]
pub(crate) struct Attach {
    /// Address and port of the target, as given to serve
    #[arg(long, alias = "listen", value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    address: SocketAddr,
    /// NVMe Qualified Name of the subsystem
    #[arg(long, default_value = DEFAULT_NQN)]
    nqn: String,
    /// I/O queues; the kernel uses at most one a processor
    #[arg(long, value_name = "COUNT", default_value_t = 2)]
    queues: u16,
    /// Entries of each I/O queue, 16 to 1024
    #[arg(long, value_name = "ENTRIES", default_value_t = 128)]
    queue_size: u16,
    /// Further connect options as the kernel knows them, such as
    /// nr_poll_queues=1 or reconnect_delay=1
    #[arg(long = "option", value_name = "KEY=VALUE")]
    options: Vec<String>,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
pub(crate) struct Detach {
    /// The node (/dev/ngXnY), or its controller (nvmeX)
    node: Option<String>,
    /// Every controller of the subsystem with this NVMe Qualified Name
    #[arg(long)]
    nqn: Option<String>,
}

impl Attach {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let controller = self.connect()?;
        match node_of(&controller) {
            Ok(node) => {
                println!("{}", node.display());
                Ok(())
            }
            Err(error) => {
                // Nothing stays behind of an attach that failed.
                let _ = fs::write(delete_file(Path::new(SYSFS), &controller), "1");
                Err(error)
            }
        }
    }

    /// Returns the name of the controller.
    fn connect(&self) -> Result<String, Box<dyn Error>> {
        let mut fabrics =
            OpenOptions::new().read(true).write(true).open(FABRICS).map_err(|error| match error
                .kind()
            {
                io::ErrorKind::NotFound => {
                    format!("{FABRICS} does not exist; load the driver: modprobe nvme-tcp")
                }
                io::ErrorKind::PermissionDenied => {
                    format!("{FABRICS} cannot be opened: {error}; run as root")
                }
                _ => format!("{FABRICS} cannot be opened: {error}"),
            })?;
        // The kernel connects inside this call and takes only one.
        let options = self.connect_options();
        fabrics.write_all(options.as_bytes()).map_err(|error| self.refusal(&error))?;
        let mut answer = String::new();
        fabrics.read_to_string(&mut answer)?;
        let instance = answer
            .trim_end()
            .split(',')
            .find_map(|field| field.strip_prefix("instance="))
            .ok_or_else(|| format!("{FABRICS} answered \"{answer}\", which names no instance"))?;
        Ok(format!("nvme{instance}"))
    }

    fn connect_options(&self) -> String {
        let mut options = format!(
            "transport=tcp,traddr={},trsvcid={},nqn={},nr_io_queues={},queue_size={}",
            self.address.ip(),
            self.address.port(),
            self.nqn,
            self.queues,
            self.queue_size
        );
        for option in &self.options {
            options.push(',');
            options.push_str(option);
        }
        options
    }

    fn refusal(&self, error: &io::Error) -> String {
        let Self { address, nqn, .. } = self;
        let hint = match error.raw_os_error() {
            Some(libc::EALREADY) => "it is attached already; detach it first",
            Some(libc::ECONNREFUSED) => "no target listens there; start nvme-kv serve",
            Some(libc::EINVAL) => {
                "the kernel log says which option or answer was wrong; without the driver for TCP, \
                 modprobe nvme-tcp"
            }
            _ => "the kernel log has the details",
        };
        format!("the kernel cannot connect to {nqn} at {address}: {error}; {hint}")
    }
}

impl Detach {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        let sysfs = Path::new(SYSFS);
        let mut controllers = Vec::new();
        if let Some(node) = &self.node {
            controllers.push(controller_of(sysfs, node)?);
        }
        if let Some(nqn) = &self.nqn {
            controllers = controllers_of(sysfs, nqn)
                .map_err(|error| format!("{SYSFS}/class/nvme cannot be read: {error}"))?;
            if controllers.is_empty() {
                return Err(format!("{nqn} is not attached").into());
            }
        }
        for controller in controllers {
            let file = delete_file(sysfs, &controller);
            fs::write(&file, "1").map_err(|error| {
                format!("{controller} cannot be detached: {}: {error}", file.display())
            })?;
        }
        Ok(())
    }
}

/// Waits for the node of a controller.
fn node_of(controller: &str) -> Result<PathBuf, Box<dyn Error>> {
    let deadline = Instant::now() + NODE_TIME;
    loop {
        let nodes = nodes_of(Path::new(SYSFS), controller)
            .map_err(|error| format!("{controller} went away again: {error}"))?;
        if let Some(node) = nodes.first().map(|name| Path::new("/dev").join(name))
            && node.exists()
        {
            return Ok(node);
        }
        if Instant::now() >= deadline {
            return Err(format!(
                "{controller} is connected, but no /dev/ng node appeared in {} s: the subsystem \
                 has no Key-Value namespace, or the kernel is older than 6.0",
                NODE_TIME.as_secs()
            )
            .into());
        }
        std::thread::sleep(NODE_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        attach: Attach,
    }

    fn attach(arguments: &[&str]) -> Attach {
        Line::parse_from(std::iter::once(&"attach").chain(arguments)).attach
    }

    #[test]
    fn the_kernel_is_told_address_name_and_queues() {
        let options = attach(&["--nqn", "nqn.x", "--queues", "3"]).connect_options();
        assert_eq!(
            options,
            "transport=tcp,traddr=127.0.0.1,trsvcid=4420,nqn=nqn.x,nr_io_queues=3,queue_size=128"
        );
    }

    #[test]
    fn further_options_are_passed_on_as_they_are() {
        let options = attach(&["--option", "nr_poll_queues=1", "--option", "reconnect_delay=1"])
            .connect_options();
        assert!(options.ends_with(",nr_poll_queues=1,reconnect_delay=1"), "{options}");
    }
}

//! `nvme-kv serve`: an emulated namespace on NVMe/TCP.

use std::{
    error::Error,
    io::{Write, stdout},
    net::SocketAddr,
    sync::Arc,
};

use clap::Args;
use nvme_kv_emulator::{
    Fault, Personality, open_with,
    target::{Options, Target},
};

use crate::{DEFAULT_NQN, fault, signal};

#[derive(Args)]
pub(crate) struct Serve {
    /// Address and port to listen on. Whoever reaches it can read and write
    /// everything: there is no authentication
    #[arg(long, value_name = "ADDRESS:PORT", default_value = "127.0.0.1:4420")]
    listen: SocketAddr,
    /// NVMe Qualified Name of the subsystem
    #[arg(long, default_value = DEFAULT_NQN)]
    nqn: String,
    /// Where values live: mem:NAME (gone when the process ends) or a directory
    #[arg(long, value_name = "mem:NAME|DIR")]
    device: String,
    /// Behaviour of the device as KEY=VALUE,..., such as dw0=zero,max-value=64k.
    /// Keys: dw0, short-retrieve, delete-missing, list, exist, max-value,
    /// capacity, max-keys, order, latency, bandwidth, granularity
    #[arg(long, value_name = "KEY=VALUE,...", default_value = "")]
    personality: Personality,
    /// Let one command go wrong, such as store:3=lost for the third Store. May be
    /// repeated. Commands: any, store, retrieve, list, delete, exist. Effects:
    /// status:SCT:SC (hexadecimal), delay:MILLISECONDS, no-answer (not executed),
    /// lost (executed, not answered), late:COMMANDS (not answered, executed that
    /// many commands later), length:DWORD0, damage:OFFSET:XOR
    #[arg(long, value_name = "COMMAND[:NTH]=EFFECT", value_parser = fault::parse)]
    fault: Vec<Fault>,
}

impl Serve {
    pub(crate) fn run(self) -> Result<(), Box<dyn Error>> {
        // Before any thread starts, so that all of them leave the signals alone.
        let signals = signal::block_termination()?;
        let namespace = open_with(&self.device, self.personality)?;
        for fault in self.fault {
            namespace.script(fault);
        }
        let target = Target::bind(self.listen, namespace, Options { nqn: self.nqn.clone() })
            .map_err(|error| format!("cannot serve on {}: {error}", self.listen))?;
        let target = Arc::new(target);
        let stopped = Arc::clone(&target);
        std::thread::spawn(move || {
            signals.wait();
            stopped.shutdown();
            // Whoever asks twice does not want to wait for hosts.
            signals.wait();
            std::process::exit(1);
        });
        let mut stdout = stdout().lock();
        writeln!(stdout, "serving {} on {} as {}", self.device, target.local_addr(), self.nqn)?;
        stdout.flush()?;
        target.run().map_err(|error| format!("cannot accept connections: {error}").into())
    }
}

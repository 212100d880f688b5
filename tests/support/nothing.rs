//! A device that says yes to everything and keeps nothing, for measurements of what is around it.

use std::sync::Arc;

use mooncake_nvme_kv::device::{
    BufferPool, Capabilities, CommandError, Completion, Executor, Reply, Stream,
};
use nvme_kv_command_set::{IdentifyKvNamespace, Key, WireProfile};

/// The device.
#[derive(Debug)]
pub struct Nothing {
    capabilities: Capabilities,
    buffers: BufferPool,
}

impl Nothing {
    pub fn new() -> Arc<Nothing> {
        let capabilities = Capabilities {
            max_value_size: 262_144,
            max_retrieve_size: 262_144,
            queue_depth: 256,
            transfer_alignment: 4096,
            destination_alignment: 4096,
            wire_profile: WireProfile::Mooncake,
            namespace_bytes: None,
            namespace_values: None,
        };
        Arc::new(Nothing { capabilities, buffers: BufferPool::new(0) })
    }
}

impl Executor for Nothing {
    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn buffers(&self) -> &BufferPool {
        &self.buffers
    }

    fn execute<'a>(&self, stream: &mut dyn Stream<'a>) {
        while let Some(request) = stream.next() {
            let result = Ok(Reply { value_len: None });
            stream.complete(Completion { tag: request.tag, result, buffer: None });
        }
    }

    fn list(&self, _: Option<&Key>, page: &mut [u8]) -> Result<(), CommandError> {
        page.fill(0);
        Ok(())
    }

    fn identify(&self) -> Result<IdentifyKvNamespace, CommandError> {
        Err(CommandError::Errno(libc::ENOTTY))
    }
}

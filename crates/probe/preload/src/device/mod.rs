//! The device of this process, as far as tests use it: a GPU by the CUDA driver and cuBLAS, or the device of the CPU stand-in
//! for NCCL, whose memory is the host's.
mod cuda;
mod products;
mod stand_in;

use crate::real::{Comm, Stream};
use crate::room::Room;
use cuda::GpuMemory;
pub(crate) use products::{Products, SIZES};

/// A device that is open for one test of this thread.
pub(crate) enum Device {
    /// The stand-in's, with the stream of tests.
    StandIn(Stream),
    /// A GPU.
    Gpu(cuda::Gpu),
}

/// Memory that NCCL sends from and receives into.
pub(crate) enum Memory<'a> {
    /// The stand-in's.
    Host(Room),
    /// A GPU's.
    Gpu(GpuMemory<'a>),
}

impl Device {
    /// The device of a communicator, or of all that the process has; `None` where there is none that we know.
    pub(crate) fn open(comm: Option<Comm>) -> Option<Device> {
        match stand_in::stream() {
            Some(stream) => Some(Device::StandIn(stream)),
            None => cuda::Gpu::open(comm).map(Device::Gpu),
        }
    }

    /// The stream of tests, which is never destroyed.
    pub(crate) fn stream(&self) -> Stream {
        match self {
            Device::StandIn(stream) => *stream,
            Device::Gpu(gpu) => gpu.stream(),
        }
    }

    /// Whether all that was put on its stream is done; `None`: it failed.
    pub(crate) fn is_idle(&self) -> Option<bool> {
        match self {
            Device::StandIn(stream) => Some(stand_in::is_idle(*stream)),
            Device::Gpu(gpu) => gpu.is_idle(),
        }
    }

    /// So many bytes; `None` where it has no more.
    pub(crate) fn memory(&self, bytes: usize) -> Option<Memory<'_>> {
        match self {
            Device::StandIn(_) => Room::new(bytes).map(Memory::Host),
            Device::Gpu(gpu) => gpu.memory(bytes).map(Memory::Gpu),
        }
    }
}

impl Memory<'_> {
    /// Where it begins.
    pub(crate) fn start(&self) -> *mut std::ffi::c_void {
        match self {
            Memory::Host(room) => room.start(),
            Memory::Gpu(memory) => memory.start(),
        }
    }

    /// Leaves the memory to somebody who did not give it back: it stays for the rest of the process's life.
    pub(crate) fn leave(self) {
        std::mem::forget(self);
    }
}

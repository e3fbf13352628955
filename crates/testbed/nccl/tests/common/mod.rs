//! Several ranks as threads of the test process, and a plain reference for every collective.
#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

pub mod jobs;
pub mod rdma;
pub mod shape;

use mycroft_testbed_nccl::abi::{Algo, DType, Func, RedOp, UniqueId};
use mycroft_testbed_nccl::api::*;
use mycroft_testbed_nccl::control::ControlFile;
use mycroft_testbed_nccl::dtype;
use mycroft_testbed_nccl::env::{Identity, set_thread_identity};
use std::ffi::c_void;
use std::net::IpAddr;
use std::ptr::null_mut;
use std::sync::Arc;

pub type Handle = *mut c_void;

/// A world of ranks.
#[derive(Debug, Clone)]
pub struct World {
    pub ranks: usize,
    pub hosts: usize,
    pub algo: Algo,
    pub channels: usize,
    pub buffsize: usize,
    pub control: Option<Arc<ControlFile>>,
    /// The address of each rank, where they have some of their own.
    pub addresses: Vec<IpAddr>,
}

impl World {
    pub fn new(ranks: usize, hosts: usize) -> World {
        World {
            ranks,
            hosts,
            algo: Algo::Ring,
            channels: 2,
            buffsize: 512 * 1024,
            control: None,
            addresses: Vec::new(),
        }
    }

    pub fn algo(mut self, algo: Algo) -> World {
        self.algo = algo;
        self
    }

    /// Runs `body` on every rank and gives the results in rank order.
    pub fn run<T: Send>(&self, body: impl Fn(&Rank) -> T + Sync) -> Vec<T> {
        let mut id = UniqueId { internal: [0; 128] };
        // SAFETY: a valid place.
        assert_eq!(unsafe { ncclGetUniqueId(&mut id) }, 0);
        std::thread::scope(|s| {
            let threads: Vec<_> = (0..self.ranks)
                .map(|rank| {
                    let body = &body;
                    s.spawn(move || {
                        set_thread_identity(Some(self.identity(rank)));
                        let rank = Rank::join(id, rank, self.ranks);
                        let out = body(&rank);
                        rank.leave();
                        out
                    })
                })
                .collect();
            threads.into_iter().map(|t| t.join().expect("a rank panicked")).collect()
        })
    }

    pub fn identity(&self, rank: usize) -> Identity {
        let mut identity = Identity::on_host(format!("host{}", rank * self.hosts / self.ranks));
        identity.algo = Some(self.algo);
        identity.channels = Some(self.channels);
        identity.buffsize = Some(self.buffsize);
        if let Some(address) = self.addresses.get(rank) {
            identity.addr = *address;
        }
        match &self.control {
            Some(file) => identity.with_control(Arc::clone(file), rank),
            None => identity,
        }
    }
}

/// One rank: its communicator and its stream.
pub struct Rank {
    pub rank: usize,
    pub ranks: usize,
    pub comm: Handle,
    pub stream: Handle,
}

impl Rank {
    pub fn join(id: UniqueId, rank: usize, ranks: usize) -> Rank {
        let (mut comm, mut stream) = (null_mut(), null_mut());
        // SAFETY: a valid place.
        assert_eq!(unsafe { ncclCommInitRank(&mut comm, ranks as i32, id, rank as i32) }, 0);
        // SAFETY: a valid place.
        assert_eq!(unsafe { mtbStreamCreate(&mut stream) }, 0);
        Rank { rank, ranks, comm, stream }
    }

    pub fn leave(&self) {
        // SAFETY: a handle of this rank.
        assert_eq!(unsafe { ncclCommDestroy(self.comm) }, 0);
        // SAFETY: a handle of this rank.
        assert_eq!(unsafe { mtbStreamDestroy(self.stream) }, 0);
    }

    pub fn sync(&self) {
        // SAFETY: a handle of this rank.
        assert_eq!(unsafe { mtbStreamSynchronize(self.stream) }, 0);
    }

    /// Runs one collective on `send` and gives the receive buffer.
    pub fn collective(&self, c: &Case, send: &[u8], in_place: bool) -> Vec<u8> {
        let es = c.dtype.size();
        let mut recv = vec![0xA5u8; c.recv_elems(self.ranks) * es];
        let mut from = send.as_ptr();
        if in_place {
            let (big, at) = match c.func {
                Func::AllGather => (recv.len(), self.rank * c.count * es),
                _ => (send.len(), 0),
            };
            recv = vec![0xA5u8; big];
            recv[at..at + send.len()].copy_from_slice(send);
            from = recv[at..].as_ptr();
        }
        let mut to = recv.as_mut_ptr();
        if in_place && c.func == Func::ReduceScatter {
            to = recv[self.rank * c.count * es..].as_mut_ptr();
        }
        self.issue(c, from.cast(), to.cast());
        self.sync();
        if in_place && c.func == Func::ReduceScatter {
            let at = self.rank * c.count * es;
            return recv[at..at + c.count * es].to_vec();
        }
        recv
    }

    pub fn issue(&self, c: &Case, from: *const c_void, to: *mut c_void) {
        let (d, o, root) = (c.dtype as i32, c.op as i32, c.root as i32);
        // SAFETY: the caller keeps both buffers, of the case's size, until the stream is synchronized.
        let rc = unsafe {
            match c.func {
                Func::AllReduce => ncclAllReduce(from, to, c.count, d, o, self.comm, self.stream),
                Func::ReduceScatter => ncclReduceScatter(from, to, c.count, d, o, self.comm, self.stream),
                Func::AllGather => ncclAllGather(from, to, c.count, d, self.comm, self.stream),
                Func::Broadcast => ncclBroadcast(from, to, c.count, d, root, self.comm, self.stream),
                Func::Reduce => ncclReduce(from, to, c.count, d, o, root, self.comm, self.stream),
                Func::Send | Func::Recv => unreachable!("not a collective"),
            }
        };
        assert_eq!(rc, 0);
    }
}

/// A collective to check.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub func: Func,
    pub dtype: DType,
    pub op: RedOp,
    pub count: usize,
    pub root: usize,
}

impl Case {
    pub fn send_elems(&self, ranks: usize) -> usize {
        if self.func == Func::ReduceScatter { self.count * ranks } else { self.count }
    }

    pub fn recv_elems(&self, ranks: usize) -> usize {
        if self.func == Func::AllGather { self.count * ranks } else { self.count }
    }

    /// Reproducible input of a rank; floats are small numbers so that sums stay finite.
    pub fn input(&self, rank: usize, ranks: usize) -> Vec<u8> {
        let mut state = (rank as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.count as u64;
        let mut out = Vec::with_capacity(self.send_elems(ranks) * self.dtype.size());
        for _ in 0..self.send_elems(ranks) {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let r = state >> 33;
            let f = match self.op {
                RedOp::Prod => [0.5f32, 1.0, 1.5, -1.0, 2.0][(r % 5) as usize],
                _ => (r % 33) as f32 * 0.25 - 4.0,
            };
            match self.dtype {
                DType::F16 => out.extend(dtype::f16_from_f32(f).to_ne_bytes()),
                DType::Bf16 => out.extend(dtype::bf16_from_f32(f).to_ne_bytes()),
                DType::F8e4m3 => out.push(dtype::e4m3_from_f32(f)),
                DType::F8e5m2 => out.push(dtype::e5m2_from_f32(f)),
                DType::F32 => out.extend(f.to_ne_bytes()),
                DType::F64 => out.extend(f64::from(f).to_ne_bytes()),
                _ => out.extend(&r.to_ne_bytes()[..self.dtype.size()]),
            }
        }
        out
    }
}

/// The elements of a buffer as f64 (floats) for comparison.
pub fn as_f64(buf: &[u8], dtype: DType) -> Vec<f64> {
    buf.chunks_exact(dtype.size())
        .map(|c| match dtype {
            DType::F16 => f64::from(dtype::f32_from_f16(u16::from_ne_bytes([c[0], c[1]]))),
            DType::Bf16 => f64::from(dtype::f32_from_bf16(u16::from_ne_bytes([c[0], c[1]]))),
            DType::F8e4m3 => f64::from(dtype::f32_from_e4m3(c[0])),
            DType::F8e5m2 => f64::from(dtype::f32_from_e5m2(c[0])),
            DType::F32 => f64::from(f32::from_ne_bytes(c.try_into().unwrap())),
            DType::F64 => f64::from_ne_bytes(c.try_into().unwrap()),
            _ => panic!("integers are compared bit by bit"),
        })
        .collect()
}

fn int(c: &[u8], dtype: DType) -> i128 {
    match dtype {
        DType::I8 => i128::from(c[0] as i8),
        DType::U8 => i128::from(c[0]),
        DType::I32 => i128::from(i32::from_ne_bytes(c.try_into().unwrap())),
        DType::U32 => i128::from(u32::from_ne_bytes(c.try_into().unwrap())),
        DType::I64 => i128::from(i64::from_ne_bytes(c.try_into().unwrap())),
        DType::U64 => i128::from(u64::from_ne_bytes(c.try_into().unwrap())),
        _ => panic!("not an integer"),
    }
}

/// Element-wise reduction of all inputs, independent of the library's arithmetic: wide integers, f64.
/// Gives bytes for integers, and the value with the allowed error for floats.
pub enum Expected {
    Bytes(Vec<u8>),
    Near(Vec<(f64, f64)>),
}

/// Relative spacing of the type's numbers.
pub fn epsilon(dtype: DType) -> f64 {
    match dtype {
        DType::F64 => f64::EPSILON,
        DType::F32 => f64::from(f32::EPSILON),
        DType::F16 => 2f64.powi(-10),
        DType::Bf16 => 2f64.powi(-7),
        DType::F8e4m3 => 2f64.powi(-3),
        _ => 2f64.powi(-2),
    }
}

pub fn reduced(c: &Case, inputs: &[Vec<u8>]) -> Expected {
    let n = inputs.len();
    if !c.dtype.is_float() {
        let es = c.dtype.size();
        let mut out = Vec::with_capacity(inputs[0].len());
        for i in 0..inputs[0].len() / es {
            let first = int(&inputs[0][i * es..][..es], c.dtype);
            let total = inputs[1..].iter().map(|b| int(&b[i * es..][..es], c.dtype)).fold(first, |a, b| match c.op {
                RedOp::Sum | RedOp::Avg => a + b,
                RedOp::Prod => wrap(a.wrapping_mul(b), c.dtype),
                RedOp::Max => a.max(b),
                RedOp::Min => a.min(b),
            });
            // An integer average divides what the type could hold of the sum.
            let total = wrap(total, c.dtype);
            let total = if c.op == RedOp::Avg { total / n as i128 } else { total };
            out.extend(&total.to_ne_bytes()[..es]);
        }
        return Expected::Bytes(out);
    }
    let all: Vec<Vec<f64>> = inputs.iter().map(|b| as_f64(b, c.dtype)).collect();
    let eps = epsilon(c.dtype);
    Expected::Near(
        (0..all[0].len())
            .map(|i| {
                let column: Vec<f64> = all.iter().map(|v| v[i]).collect();
                let size: f64 = column.iter().map(|v| v.abs()).sum();
                match c.op {
                    RedOp::Sum => (column.iter().sum(), eps * n as f64 * size.max(1e-6)),
                    RedOp::Avg => (column.iter().sum::<f64>() / n as f64, eps * 2.0 * size.max(0.1)),
                    RedOp::Prod => {
                        let p: f64 = column.iter().product();
                        (p, eps * n as f64 * p.abs().max(0.1))
                    }
                    RedOp::Max => (column.iter().copied().fold(f64::MIN, f64::max), 0.0),
                    RedOp::Min => (column.iter().copied().fold(f64::MAX, f64::min), 0.0),
                }
            })
            .collect(),
    )
}

fn wrap(v: i128, dtype: DType) -> i128 {
    let mut bytes = [0u8; 16];
    bytes.copy_from_slice(&v.to_ne_bytes());
    int(&bytes[..dtype.size()], dtype)
}

/// Runs a collective on all ranks of a world and checks every rank's result.
pub fn check(world: &World, case: Case, in_place: bool) {
    let inputs: Vec<Vec<u8>> = (0..world.ranks).map(|r| case.input(r, world.ranks)).collect();
    let outputs = world.run(|rank| rank.collective(&case, &inputs[rank.rank], in_place));
    verify(world.ranks, &case, &inputs, &outputs);
}

pub fn verify(ranks: usize, case: &Case, inputs: &[Vec<u8>], outputs: &[Vec<u8>]) {
    let bytes = case.count * case.dtype.size();
    let saturating = matches!(case.dtype, DType::F8e4m3) && case.op == RedOp::Prod;
    for (rank, got) in outputs.iter().enumerate() {
        let same = |want: &[u8]| assert!(got == want, "rank {rank} of {ranks}: {case:?}");
        match case.func {
            Func::Broadcast => same(&inputs[case.root]),
            Func::AllGather => same(&inputs.concat()),
            Func::Reduce if rank != case.root => {}
            _ => {
                let parts: Vec<Vec<u8>> = match case.func {
                    Func::ReduceScatter => inputs.iter().map(|b| b[rank * bytes..][..bytes].to_vec()).collect(),
                    _ => inputs.to_vec(),
                };
                match reduced(case, &parts) {
                    Expected::Bytes(want) => same(&want),
                    Expected::Near(want) => {
                        for (i, (g, (w, tolerance))) in as_f64(got, case.dtype).iter().zip(&want).enumerate() {
                            let near = (g - w).abs() <= *tolerance || (saturating && w.abs() > 400.0);
                            assert!(near, "rank {rank} element {i}: {g} instead of {w} +- {tolerance}: {case:?}");
                        }
                    }
                }
            }
        }
    }
}

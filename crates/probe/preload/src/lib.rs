//! `libmycroft_preload.so`: stands before NCCL's host calls (`LD_PRELOAD`), counts them, and is the gate at which the ranks
//! of a job wait on request (FALCON 4.3).
//!
//! Each function here has the name of one of NCCL's, does its bookkeeping, and calls NCCL's own with the same arguments; its
//! result is NCCL's. Nothing else of NCCL is touched. While nobody asks, a call costs a few loads and one store (`gate`): no
//! lock, no heap, no system call. It waits only while a requester holds the gate (`mycroft_ring::gate`), and while it waits it
//! does what the requester orders (`tasks`): tests of its device, its host, and its ways to others.
//!
//! It also stands before one function of libibverbs, which NCCL asks for by name, and lists whose queue pairs are whose (`verbs`).
//!
//! A program that is linked to NCCL is seen, also where NCCL came in with a library that was opened later (`real`). One that
//! opens NCCL by itself and asks that handle for its functions is not, and neither is NCCL linked statically: such a process
//! has no gate, and a requester says so.
mod alone;
mod answer;
pub mod calls;
pub mod comms;
mod device;
mod gate;
mod group;
mod lanes;
mod library;
mod link;
mod meet;
mod pair;
mod real;
mod records;
mod room;
mod table;
mod tasks;
mod thread;
pub mod verbs;
mod waited;

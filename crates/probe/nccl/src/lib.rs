//! nccl plugin

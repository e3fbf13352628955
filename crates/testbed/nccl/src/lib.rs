//! libnccl.so.2 stand-in.

"""A torch.distributed backend for CPU tensors over the CPU collective library, by ctypes and without a compiler.

The library has NCCL's C interface and loads NCCL's profiler plugin, so that the tracer sees a real framework's calls in the
order in which ProcessGroupNCCL would make them: one communicator and one stream for each process group, made at its first
operation; one more for each pair of ranks that send without batching; coalesced calls as one group; lists gathered or
scattered through one flat buffer; all-to-all, gather and scatter as grouped sends; a barrier as a sum of one number.

Unlike there, `wait` blocks the host: the tensors of a CPU are computed by the thread that waits.
"""
import collections
import ctypes
import os
import threading

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as CBackend
from torch._C._distributed_c10d import Work as CWork

NAME = "mycroft"
ENV_LIBRARY = "MYCROFT_TORCH_NCCL"
IN_PROGRESS = 7
UNDEFINED = -(2**31)
DTYPES = {
    torch.int8: 0, torch.uint8: 1, torch.bool: 1, torch.int32: 2, torch.uint32: 3, torch.int64: 4, torch.uint64: 5,
    torch.float16: 6, torch.float32: 7, torch.float64: 8, torch.bfloat16: 9, torch.float8_e4m3fn: 10,
    torch.float8_e5m2: 11,
}  # fmt: skip
RedOpType = dist.ReduceOp.RedOpType
OPS = {RedOpType.SUM: 0, RedOpType.PRODUCT: 1, RedOpType.MAX: 2, RedOpType.MIN: 3, RedOpType.AVG: 4}
# Of booleans a sum is "any", and a product "all".
BOOL_OPS = {RedOpType.SUM: 2, RedOpType.PRODUCT: 3, RedOpType.MAX: 2, RedOpType.MIN: 3, RedOpType.BOR: 2, RedOpType.BAND: 3}


class UniqueId(ctypes.Structure):
    _fields_ = [("bytes", ctypes.c_ubyte * 128)]


class Config(ctypes.Structure):
    """ncclConfig_t of NCCL 2.27."""

    _fields_ = [
        ("size", ctypes.c_size_t), ("magic", ctypes.c_uint), ("version", ctypes.c_uint), ("blocking", ctypes.c_int),
        ("cga", ctypes.c_int), ("min_ctas", ctypes.c_int), ("max_ctas", ctypes.c_int), ("net", ctypes.c_char_p),
        ("split_share", ctypes.c_int), ("traffic_class", ctypes.c_int), ("name", ctypes.c_char_p),
    ]  # fmt: skip


class Nccl:
    """The library's functions; ctypes gives the interpreter's lock up during each call."""

    def __init__(self, path):
        if "libmycroft_preload" in os.environ.get("LD_PRELOAD", ""):
            # For all to see, and looked up from the program on: what stands before it is called, and finds it.
            self.library = ctypes.CDLL(path, ctypes.RTLD_GLOBAL)
            self.lib = ctypes.CDLL(None)
        else:
            self.lib = ctypes.CDLL(path)
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int
        self.lib.ncclGetLastError.restype = ctypes.c_char_p
        for name, arguments in {
            "ncclGetUniqueId": [ctypes.POINTER(UniqueId)],
            "ncclCommInitRankConfig": [ctypes.POINTER(pointer), number, UniqueId, number, ctypes.POINTER(Config)],
            "ncclCommDestroy": [pointer],
            "ncclCommAbort": [pointer],
            "ncclCommGetAsyncError": [pointer, ctypes.POINTER(number)],
            "ncclGetLastError": [pointer],
            "ncclAllReduce": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclReduce": [pointer, pointer, size, number, number, number, pointer, pointer],
            "ncclBroadcast": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclAllGather": [pointer, pointer, size, number, pointer, pointer],
            "ncclReduceScatter": [pointer, pointer, size, number, number, pointer, pointer],
            "ncclSend": [pointer, size, number, number, pointer, pointer],
            "ncclRecv": [pointer, size, number, number, pointer, pointer],
            "ncclGroupStart": [],
            "ncclGroupEnd": [],
            "mtbStreamCreate": [ctypes.POINTER(pointer)],
            "mtbLaunchCompute": [pointer, ctypes.c_uint64],
            "mtbStreamSynchronize": [pointer],
            "mtbStreamWaitEvent": [pointer, pointer],
            "mtbEventRecord": [ctypes.POINTER(pointer), pointer],
            "mtbEventQuery": [pointer],
            "mtbEventSynchronize": [pointer],
            "mtbEventDestroy": [pointer],
            "mtbProfilerEvents": [number],
        }.items():
            getattr(self.lib, name).argtypes = arguments

    def call(self, name, *arguments):
        code = getattr(self.lib, name)(*arguments)
        if code != 0:
            text = (self.lib.ncclGetLastError(None) or b"").decode(errors="replace")
            raise dist.DistBackendError(f"{name}: code {code}: {text}")


_loaded = None


def nccl():
    """The library, loaded once."""
    global _loaded
    if _loaded is None:
        _loaded = Nccl(os.environ[ENV_LIBRARY])
    return _loaded


class Device:
    """The emulated device's stream of computations: as on a GPU the host enqueues them and goes on, and a collective begins
    when those before it are over."""

    def __init__(self):
        self.stream = ctypes.c_void_p()
        nccl().call("mtbStreamCreate", ctypes.byref(self.stream))

    def launch(self, ms):
        """Computes for so long."""
        nccl().call("mtbLaunchCompute", self.stream, int(ms * 1e6))

    def synchronize(self):
        nccl().call("mtbStreamSynchronize", self.stream)

    def hold_back(self, stream):
        """What is enqueued there from now on waits for what was launched here so far."""
        event = ctypes.c_void_p()
        nccl().call("mtbEventRecord", ctypes.byref(event), self.stream)
        nccl().call("mtbStreamWaitEvent", stream, event)
        nccl().call("mtbEventDestroy", event)


_device = None


def device():
    """The process's device, made at first use; operations wait for it from then on."""
    global _device
    if _device is None:
        _device = Device()
    return _device


class Comm:
    """A communicator with its stream."""

    def __init__(self, store, key, rank, size, name):
        library, unique = nccl(), UniqueId()
        if rank == 0:
            library.call("ncclGetUniqueId", ctypes.byref(unique))
            store.set(key, bytes(unique))
        else:
            unique = UniqueId.from_buffer_copy(store.get(key))
        config = Config(
            ctypes.sizeof(Config), 0xCAFEBEEF, 22700, *[UNDEFINED] * 4, None, UNDEFINED, UNDEFINED, name.encode()
        )
        self.handle, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        library.call("ncclCommInitRankConfig", ctypes.byref(self.handle), size, unique, rank, ctypes.byref(config))
        library.call("mtbStreamCreate", ctypes.byref(self.stream))

    def check(self):
        state = ctypes.c_int()
        nccl().call("ncclCommGetAsyncError", self.handle, ctypes.byref(state))
        if state.value not in (0, IN_PROGRESS):
            raise dist.DistBackendError(f"NCCL communicator was aborted or broke: code {state.value}")


class Pending(CWork):
    """An operation under way: holds its tensors, and what is to be copied when it is over."""

    def __init__(self, comms, held, result, after=None):
        super().__init__()
        self.held, self.output, self.after = held, result, after
        self.comms, self.events = comms, []
        for comm in comms:
            event = ctypes.c_void_p()
            nccl().call("mtbEventRecord", ctypes.byref(event), comm.stream)
            self.events.append(event)
        self.lock, self.over, self.failure, self.future = threading.Lock(), False, None, None

    def is_over(self):
        return self.over or all(nccl().lib.mtbEventQuery(event) == 0 for event in self.events)

    def finish(self):
        """Waits; copies once, whoever comes first."""
        for event in self.events:
            nccl().lib.mtbEventSynchronize(event)
        with self.lock:
            if not self.over:
                try:
                    for comm in self.comms:
                        comm.check()
                    if self.after is not None:
                        with torch.no_grad():
                            self.after()
                except Exception as failure:
                    self.failure = failure
                self.over, self.held, self.after = True, None, None
        if self.failure is not None:
            raise self.failure

    def __del__(self):
        for event in self.events:
            nccl().lib.mtbEventDestroy(event)

    # What torch calls.

    def wait(self, timeout=None):
        self.finish()
        return True

    def synchronize(self):
        self.finish()

    def is_completed(self):
        return self.is_over()

    def is_success(self):
        return self.over and self.failure is None

    def result(self):
        return self.output

    def get_future(self):
        with self.lock:
            if self.future is None:
                self.future = torch.futures.Future()
                _watcher.put(self)
            return self.future


class Watcher:
    """One thread for each backend-using process that completes the futures somebody asked for, in their order."""

    def __init__(self):
        self.queue, self.changed, self.thread = collections.deque(), threading.Condition(), None

    def put(self, work):
        with self.changed:
            self.queue.append(work)
            if self.thread is None:
                self.thread = threading.Thread(target=self.run, daemon=True, name="mycroft-futures")
                self.thread.start()
            self.changed.notify()

    def run(self):
        while True:
            with self.changed:
                self.changed.wait_for(lambda: self.queue)
                work = self.queue.popleft()
            try:
                work.finish()
                work.future.set_result(work.output)
            except Exception as failure:
                work.future.set_exception(failure)


_watcher = Watcher()


def as_dtype(tensor):
    if tensor.dtype not in DTYPES:
        raise TypeError(f"{tensor.dtype}: NCCL has no such type")
    return DTYPES[tensor.dtype]


def as_op(op, tensor):
    kind = getattr(op, "op", op)
    table = BOOL_OPS if tensor.dtype == torch.bool else OPS
    for known, number in table.items():
        if kind == known:
            return number
    raise ValueError(f"reduction {op}: NCCL has no such operation for {tensor.dtype}")


def real(tensor):
    """Complex numbers travel as pairs."""
    return torch.view_as_real(tensor) if tensor.is_complex() else tensor


class MycroftBackend(CBackend):
    """What torch calls for one process group."""

    def __init__(self, store, rank, size, name="", timeout=None):
        super().__init__(rank, size)
        self.store, self.group_rank, self.group_size, self.group = store, rank, size, name
        self.comms, self.making = {}, threading.Lock()
        self.pending, self.coalescing, self.sequence = collections.deque(), None, 0

    # What torch asks.

    def getBackendName(self):
        return NAME

    @property
    def supports_coalescing(self):
        return True

    def _set_sequence_number_for_group(self):
        self.sequence = 0

    def _get_sequence_number_for_group(self):
        return self.sequence

    def set_timeout(self, timeout):
        pass

    def shutdown(self):
        for comm in self.comms.values():
            nccl().lib.ncclCommDestroy(comm.handle)
        self.comms = {}

    def abort(self):
        for comm in self.comms.values():
            nccl().lib.ncclCommAbort(comm.handle)
        self.comms = {}

    # How every call goes.

    def comm(self, peer=None):
        """The group's communicator, or the one with a peer."""
        key = "all" if peer is None else "{}:{}".format(*sorted((self.group_rank, peer)))
        with self.making:
            if key not in self.comms:
                rank, size = (self.group_rank, self.group_size) if peer is None else (int(peer < self.group_rank), 2)
                # A send to itself has a communicator of one.
                if peer == self.group_rank:
                    rank, size = 0, 1
                name = self.group if peer is None else f"{self.group} {key}"
                self.comms[key] = Comm(self.store, f"nccl_id/{key}", rank, size, name)
            return self.comms[key]

    def issue(self, comm, calls, held, result, after=None):
        """Makes the calls, one group if there are several, and gives the work."""
        self.sequence += 1
        library = nccl()
        if _device is not None:
            _device.hold_back(comm.stream)
        grouped = len(calls) > 1
        if grouped:
            library.call("ncclGroupStart")
        try:
            for name, *arguments in calls:
                library.call(name, *arguments, comm.handle, comm.stream)
        finally:
            if grouped:
                library.call("ncclGroupEnd")
        if self.coalescing is not None:
            self.coalescing.append((comm, held, result, after))
            return None
        return self.keep(Pending([comm], held, result, after))

    def keep(self, work):
        """A work that its caller drops must still hold its tensors until it is over."""
        self.pending.append(work)
        while self.pending and self.pending[0].is_over():
            self.pending.popleft()
        return work

    def start_coalescing(self):
        self.coalescing = []
        nccl().call("ncclGroupStart")

    def end_coalescing(self):
        members, self.coalescing = self.coalescing, None
        nccl().call("ncclGroupEnd")
        if not members:
            return None
        comms = list({id(comm): comm for comm, *_ in members}.values())
        afters = [after for *_, after in members if after is not None]

        def copy_all():
            for after in afters:
                after()

        return self.keep(Pending(comms, members, [member[2] for member in members], copy_all))

    def in_place(self, tensor):
        """A contiguous tensor to work on, and what copies it back, if anything."""
        tensor = real(tensor.detach())
        if tensor.is_contiguous():
            return tensor, None
        packed = tensor.contiguous()
        return packed, lambda: tensor.copy_(packed)

    # Collectives. Each gives (calls, held tensors, what to copy at the end) to `issue`.

    def reduce_calls(self, tensors, op, root=None):
        calls, held, afters = [], [], []
        for tensor in tensors:
            packed, after = self.in_place(tensor)
            held.append(packed)
            afters += [after] if after else []
            head = (packed.data_ptr(), packed.data_ptr(), packed.numel(), as_dtype(packed), as_op(op, packed))
            calls.append(("ncclAllReduce", *head) if root is None else ("ncclReduce", *head, root))
        return calls, held, (lambda: [after() for after in afters]) if afters else None

    def allreduce(self, tensors, opts):
        calls, held, after = self.reduce_calls(tensors, opts.reduceOp)
        return self.issue(self.comm(), calls, held, tensors, after)

    def allreduce_coalesced(self, tensors, opts):
        return self.allreduce(tensors, opts)

    def reduce(self, tensors, opts):
        calls, held, after = self.reduce_calls(tensors, opts.reduceOp, opts.rootRank)
        return self.issue(self.comm(), calls, held, tensors, after)

    def broadcast(self, tensors, opts):
        calls, held, afters = [], [], []
        for tensor in tensors:
            packed, after = self.in_place(tensor)
            held.append(packed)
            afters += [after] if after else []
            address = packed.data_ptr()
            calls.append(("ncclBroadcast", address, address, packed.numel(), as_dtype(packed), opts.rootRank))
        copy = (lambda: [after() for after in afters]) if afters else None
        return self.issue(self.comm(), calls, held, tensors, copy)

    def barrier(self, opts):
        number = torch.zeros(1)
        calls, held, _ = self.reduce_calls([number], dist.ReduceOp.SUM)
        return self.issue(self.comm(), calls, held, [number])

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        calls, held, afters = [], [], []
        for output, given in zip(outputs, inputs):
            packed, after = self.in_place(output)
            source = real(given.detach()).contiguous()
            held += [packed, source]
            afters += [after] if after else []
            calls.append(("ncclAllGather", source.data_ptr(), packed.data_ptr(), source.numel(), as_dtype(source)))
        copy = (lambda: [after() for after in afters]) if afters else None
        return self.issue(self.comm(), calls, held, outputs, copy)

    def all_gather_single(self, output, given, opts=None):
        return self.all_gather_single_coalesced([output], [given])

    def allgather(self, outputs, inputs, opts=None):
        return self.allgather_coalesced([list(outputs[0])], inputs, opts, outputs)

    def allgather_coalesced(self, outputs, inputs, opts=None, result=None):
        calls, held, copies = [], [], []
        for targets, given in zip(outputs, inputs):
            source = real(given.detach()).contiguous()
            flat = source.new_empty((self.group_size, *source.shape))
            held += [source, flat]
            copies += [(real(target.detach()), part) for target, part in zip(targets, flat.unbind(0))]
            calls.append(("ncclAllGather", source.data_ptr(), flat.data_ptr(), source.numel(), as_dtype(source)))
        copy = lambda: [target.copy_(part.view_as(target)) for target, part in copies]
        return self.issue(self.comm(), calls, held, result or outputs, copy)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        calls, held, afters = [], [], []
        for output, given in zip(outputs, inputs):
            packed, after = self.in_place(output)
            source = real(given.detach()).contiguous()
            held += [packed, source]
            afters += [after] if after else []
            tail = (packed.numel(), as_dtype(packed), as_op(opts.reduceOp, packed))
            calls.append(("ncclReduceScatter", source.data_ptr(), packed.data_ptr(), *tail))
        copy = (lambda: [after() for after in afters]) if afters else None
        return self.issue(self.comm(), calls, held, outputs, copy)

    def reduce_scatter_single(self, output, given, opts):
        return self.reduce_scatter_single_coalesced([output], [given], opts)

    def reduce_scatter(self, outputs, inputs, opts):
        flats = [torch.stack([part.detach() for part in parts]) for parts in inputs]
        return self.reduce_scatter_single_coalesced(outputs, flats, opts)

    # What NCCL has no call for: grouped sends.

    def exchange(self, comm, sends, receives, result, after=None):
        """Sends and receives of (tensor, peer), one group."""
        calls = [("ncclSend", t.data_ptr(), t.numel(), as_dtype(t), peer) for t, peer in sends if t.numel()]
        calls += [("ncclRecv", t.data_ptr(), t.numel(), as_dtype(t), peer) for t, peer in receives if t.numel()]
        return self.issue(comm, calls, (sends, receives), result, after)

    def packed(self, tensors):
        """Contiguous receivers for tensors, and what copies them back."""
        pairs = [self.in_place(tensor) for tensor in tensors]
        afters = [after for _, after in pairs if after]
        return [tensor for tensor, _ in pairs], (lambda: [after() for after in afters]) if afters else None

    def alltoall(self, outputs, inputs, opts=None):
        targets, after = self.packed(outputs)
        sources = [real(given.detach()).contiguous() for given in inputs]
        return self.exchange(self.comm(), zip_ranks(sources), zip_ranks(targets), outputs, after)

    def all_to_all_single(self, output, given, output_sizes, input_sizes, opts=None):
        packed, after = self.in_place(output)
        source = real(given.detach()).contiguous()

        def parts(tensor, sizes):
            even = [tensor.shape[0] // self.group_size] * self.group_size
            return zip_ranks(tensor.split(list(sizes) or even))

        return self.exchange(self.comm(), parts(source, input_sizes), parts(packed, output_sizes), [output], after)

    def gather(self, outputs, inputs, opts):
        source = real(inputs[0].detach()).contiguous()
        targets, after = self.packed(outputs[0] if self.group_rank == opts.rootRank else [])
        return self.exchange(self.comm(), [(source, opts.rootRank)], zip_ranks(targets), outputs, after)

    def scatter(self, outputs, inputs, opts):
        (target,), after = self.packed(outputs)
        given = inputs[0] if self.group_rank == opts.rootRank else []
        sources = [real(part.detach()).contiguous() for part in given]
        return self.exchange(self.comm(), zip_ranks(sources), [(target, opts.rootRank)], outputs, after)

    def one_way(self, peer):
        """Batched transfers use the group's communicator, others one with the peer: its rank there."""
        if self.coalescing is not None:
            return self.comm(), peer
        return self.comm(peer), int(peer > self.group_rank)

    def send(self, tensors, peer, tag):
        comm, number = self.one_way(peer)
        return self.exchange(comm, [(real(tensors[0].detach()).contiguous(), number)], [], tensors)

    def recv(self, tensors, peer, tag):
        comm, number = self.one_way(peer)
        (target,), after = self.packed(tensors)
        return self.exchange(comm, [], [(target, number)], tensors, after)


def zip_ranks(tensors):
    return [(tensor, rank) for rank, tensor in enumerate(tensors)]


def register():
    """Makes `init_process_group("mycroft")` work."""

    def create(opts, options=None):
        return MycroftBackend(opts.store, opts.group_rank, opts.group_size, str(opts.group_id), opts.timeout)

    dist.Backend.register_backend(NAME, create, extended_api=True, devices=["cpu"])

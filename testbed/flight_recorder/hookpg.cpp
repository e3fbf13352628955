// A c10d backend without a recorder of its own, so that torch (2.15 and later) attaches its FlightRecorderHook: the
// recorder path of the default "nccl" backend (nccl2). Every call is forwarded to Gloo; completion is reported from
// one waiting thread per operation, as a watchdog would. The name of the backend is an argument; it is what dumps say.
//
// Also: park(), which lets a process whose Gloo transport finds a broken message sleep instead of abort. Gloo ends the
// process where NCCL would hang; parked, the job hangs as NCCL's would.
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/python_comm_hook.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/extension.h>

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>

namespace {

using c10::intrusive_ptr;
using c10d::Work;

std::atomic<uint64_t> next_key{1};

// What the waiting threads need of a backend, outliving it.
struct Hooks {
  std::mutex mutex;
  std::map<int64_t, c10d::CompletionHook> completion;

  void completed(uint64_t key, float duration_ms) {
    std::map<int64_t, c10d::CompletionHook> copy;
    {
      std::lock_guard<std::mutex> lock(mutex);
      copy = completion;
    }
    for (auto& [id, hook] : copy) {
      c10d::CompletionHookArgs args;
      args.completionKey = key;
      args.duration_ms = duration_ms;
      hook(args);
    }
  }
};

struct HookWork : Work {
  explicit HookWork(intrusive_ptr<Work> inner) : inner(std::move(inner)), key(next_key++) {}
  uint64_t getCompletionKey() const override {
    return key;
  }
  std::vector<at::Tensor> result() override {
    return inner->result();
  }
  intrusive_ptr<c10::ivalue::Future> getFuture() override {
    return inner->getFuture();
  }
  int sourceRank() const override {
    return inner->sourceRank();
  }
  void done(std::exception_ptr error) {
    finish(error);
  }
  intrusive_ptr<Work> inner;
  uint64_t key;
};

struct HookBackend : c10d::Backend {
  HookBackend(intrusive_ptr<Backend> inner, std::string name, bool hang_on_error)
      : Backend(inner->getRank(), inner->getSize()),
        inner(std::move(inner)),
        name(std::move(name)),
        hang_on_error(hang_on_error),
        hooks(std::make_shared<Hooks>()) {}

  const std::string getBackendName() const override {
    return name;
  }
  bool supportsCompletionHooks() const override {
    return true;
  }
  void registerCompletionHook(int64_t id, c10d::CompletionHook hook) override {
    std::lock_guard<std::mutex> lock(hooks->mutex);
    hooks->completion[id] = std::move(hook);
  }
  void unregisterCompletionHook(int64_t id) override {
    std::lock_guard<std::mutex> lock(hooks->mutex);
    hooks->completion.erase(id);
  }

  intrusive_ptr<Work> watch(intrusive_ptr<Work> work) {
    auto wrapped = c10::make_intrusive<HookWork>(work);
    auto begun = std::chrono::steady_clock::now();
    std::thread([wrapped, hooks = hooks, begun, hang = hang_on_error] {
      try {
        wrapped->inner->wait();
      } catch (...) {
        while (hang) { // as NCCL does when a peer is gone: nobody tells it
          pause();
        }
        wrapped->done(std::current_exception());
        return;
      }
      std::chrono::duration<float, std::milli> took = std::chrono::steady_clock::now() - begun;
      wrapped->done(nullptr);
      hooks->completed(wrapped->key, took.count());
    }).detach();
    return wrapped;
  }

  using Tensors = std::vector<at::Tensor>;
  using Splits = std::vector<int64_t>;
  intrusive_ptr<Work> broadcast(Tensors& t, const c10d::BroadcastOptions& o) override {
    return watch(inner->broadcast(t, o));
  }
  intrusive_ptr<Work> allreduce(Tensors& t, const c10d::AllreduceOptions& o) override {
    return watch(inner->allreduce(t, o));
  }
  intrusive_ptr<Work> allreduce_coalesced(Tensors& t, const c10d::AllreduceCoalescedOptions& o) override {
    return watch(inner->allreduce_coalesced(t, o));
  }
  intrusive_ptr<Work> reduce(Tensors& t, const c10d::ReduceOptions& o) override {
    return watch(inner->reduce(t, o));
  }
  intrusive_ptr<Work> allgather(std::vector<Tensors>& out, Tensors& in, const c10d::AllgatherOptions& o) override {
    return watch(inner->allgather(out, in, o));
  }
  intrusive_ptr<Work> all_gather_single(at::Tensor& out, at::Tensor& in, const c10d::AllgatherOptions& o) override {
    return watch(inner->all_gather_single(out, in, o));
  }
  intrusive_ptr<Work> gather(std::vector<Tensors>& out, Tensors& in, const c10d::GatherOptions& o) override {
    return watch(inner->gather(out, in, o));
  }
  intrusive_ptr<Work> scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ScatterOptions& o) override {
    return watch(inner->scatter(out, in, o));
  }
  intrusive_ptr<Work> reduce_scatter(Tensors& out, std::vector<Tensors>& in, const c10d::ReduceScatterOptions& o)
      override {
    return watch(inner->reduce_scatter(out, in, o));
  }
  intrusive_ptr<Work> reduce_scatter_single(at::Tensor& out, at::Tensor& in, const c10d::ReduceScatterOptions& o)
      override {
    return watch(inner->reduce_scatter_single(out, in, o));
  }
  intrusive_ptr<Work> all_to_all_single(
      at::Tensor& out,
      at::Tensor& in,
      Splits& out_splits,
      Splits& in_splits,
      const c10d::AllToAllOptions& o) override {
    return watch(inner->all_to_all_single(out, in, out_splits, in_splits, o));
  }
  intrusive_ptr<Work> send(Tensors& t, int dst, int tag) override {
    return watch(inner->send(t, dst, tag));
  }
  intrusive_ptr<Work> recv(Tensors& t, int src, int tag) override {
    return watch(inner->recv(t, src, tag));
  }
  intrusive_ptr<Work> recvAnysource(Tensors& t, int tag) override {
    return watch(inner->recvAnysource(t, tag));
  }
  intrusive_ptr<Work> barrier(const c10d::BarrierOptions& o) override {
    return watch(inner->barrier(o));
  }
  uint64_t getSequenceNumberForGroup() override {
    return inner->getSequenceNumberForGroup();
  }

  intrusive_ptr<Backend> inner;
  std::string name;
  bool hang_on_error;
  std::shared_ptr<Hooks> hooks;
};

void park() {
  std::set_terminate([] {
    std::fputs("parked: the transport found a broken message\n", stderr);
    for (;;) {
      pause();
    }
  });
}

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  py::class_<HookBackend, c10d::Backend, c10::intrusive_ptr<HookBackend>>(m, "HookBackend");
  m.def("wrap", [](const intrusive_ptr<c10d::Backend>& inner, const std::string& name, bool hang_on_error) {
    return c10::make_intrusive<HookBackend>(inner, name, hang_on_error);
  });
  m.def("park", &park);
}

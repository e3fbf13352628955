"""Sends over loopback TCP and writes what the kernel shows of it as pcap; ends with 77 where it may not or cannot look.

`FILE bursts` sends equal bursts and prints the receiver's port; `FILE ring` passes slices around a ring of 127.0.0.11 to .14, in step,
of which .13 sends at half the rate of the others.
"""

import socket
import struct
import sys
import threading
import time

BURSTS, BYTES, SNAP = 50, 20_000, 128
SO_TIMESTAMPNS, SO_MAX_PACING_RATE = 35, 47
RANKS, OPERATIONS, SLICES, SLICE, RATE = 4, 8, 4, 1_600_000, 60_000_000


def capture(path, is_over):
    """Writes packets until nothing has come for a while and it is over."""
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, 1))
        while True:
            try:
                packet, times, _, about = tap.recvmsg(1 << 17, 64)
            except TimeoutError:
                if is_over():
                    return
                continue
            # Each packet is seen as it leaves (4) and as it comes.
            if about[2] != socket.PACKET_OUTGOING:
                seconds, nanoseconds = struct.unpack("ll", times[0][2])
                kept = packet[:SNAP]
                file.write(struct.pack("<IIII", seconds, nanoseconds, len(kept), len(packet)) + kept)


def bursts(path):
    """Equal bursts with pauses over one connection."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]

    def receive():
        connection, _ = listener.accept()
        while connection.recv(1 << 20):
            pass

    def send():
        with socket.create_connection(("127.0.0.1", port)) as connection:
            for _ in range(BURSTS):
                connection.sendall(b"x" * BYTES)
                # The pause between two operations is what the test is about.
                time.sleep(0.005)

    threads = [threading.Thread(target=receive), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    capture(path, lambda: not threads[1].is_alive())
    threads[0].join()
    print(port)


def ring(path):
    """Operations of a ring: each rank sends a slice on when it has the one before."""
    address = "127.0.0.{}".format
    listeners = [socket.create_server((address(11 + rank), 0)) for rank in range(RANKS)]
    begins = threading.Barrier(RANKS)

    def run(rank):
        to = socket.socket()
        to.setsockopt(socket.SOL_SOCKET, SO_MAX_PACING_RATE, RATE // 2 if rank == 2 else RATE)
        # A slice waits in the program, as a network card takes it from there, and not in the kernel.
        to.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        to.bind((address(11 + rank), 0))
        to.connect(listeners[(rank + 1) % RANKS].getsockname())
        before, _ = listeners[rank].accept()
        for _ in range(OPERATIONS):
            begins.wait()
            for _ in range(SLICES):
                sender = threading.Thread(target=to.sendall, args=(b"x" * SLICE,))
                sender.start()
                before.recv(SLICE, socket.MSG_WAITALL)
                sender.join()
            # Computation: the pause between two operations.
            time.sleep(0.06)
        begins.wait()

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(RANKS)]
    for thread in threads:
        thread.start()
    capture(path, lambda: not any(thread.is_alive() for thread in threads))


try:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.bind(("lo", 0))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
except OSError:
    sys.exit(77)
tap.settimeout(0.5)
{"bursts": bursts, "ring": ring}[sys.argv[2]](sys.argv[1])

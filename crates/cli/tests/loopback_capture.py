"""Sends bursts over loopback TCP and writes what the kernel shows of them as pcap; ends with 77 where it may not or cannot look."""

import socket
import struct
import sys
import threading
import time

BURSTS, BYTES, SNAP = 50, 20_000, 128
SO_TIMESTAMPNS = 35

try:
    tap = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    tap.bind(("lo", 0))
    tap.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
    tap.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
except OSError:
    sys.exit(77)
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


receiver, sender = threading.Thread(target=receive), threading.Thread(target=send)
receiver.start()
sender.start()
tap.settimeout(0.5)
with open(sys.argv[1], "wb") as file:
    file.write(struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, SNAP, 1))
    while True:
        try:
            packet, times, _, about = tap.recvmsg(1 << 17, 64)
        except TimeoutError:
            if not sender.is_alive():
                break
            continue
        # Each packet is seen as it leaves (4) and as it comes.
        if about[2] != socket.PACKET_OUTGOING:
            seconds, nanoseconds = struct.unpack("ll", times[0][2])
            kept = packet[:SNAP]
            file.write(struct.pack("<IIII", seconds, nanoseconds, len(kept), len(packet)) + kept)
receiver.join()
print(port)

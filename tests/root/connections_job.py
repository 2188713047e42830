# SPDX-License-Identifier: Apache-2.0
"""The job of tests/root/connections.py: four processes of which one, in a network namespace of its own, sends to another, which sends to one
that reads and to one that does not.

connections_job.py launch FOLDER. FOLDER/pids: whose is which pid; FOLDER/ready: all are connected."""
import json
import os
import socket
import subprocess
import sys
import threading
import time

OUTSIDE, INSIDE, PORT = "10.231.78.1", "10.231.78.2", 29643
BYTES, PAUSE_S = 1 << 16, 0.05


def connect(host, role):
    while True:
        try:
            connection = socket.create_connection((host, PORT), timeout=5)
            break
        except OSError:
            time.sleep(0.1)
    connection.settimeout(None)
    connection.sendall(role[:1].encode())
    return connection


def send(connection, pause_s):
    while True:
        connection.sendall(bytes(BYTES))
        time.sleep(pause_s)


def receive(connection):
    while connection.recv(1 << 20):
        pass


def middle(folder):
    serve = {b"s": (receive,), b"r": (send, PAUSE_S), b"i": (send, 0.0)}
    with socket.create_server(("", PORT)) as server:
        for _ in serve:
            connection, _ = server.accept()
            work, *rest = serve[connection.recv(1)]
            threading.Thread(target=work, args=(connection, *rest), daemon=True).start()
        with open(os.path.join(folder, "ready"), "w", encoding="utf-8") as file:
            file.write("1")
        threading.Event().wait()


def launch(folder):
    pids, children = {}, []
    for role, host in (("middle", folder), ("reader", "127.0.0.1"), ("idler", "127.0.0.1"), ("sender", OUTSIDE)):
        command = [sys.executable, os.path.abspath(__file__), role, host]
        if role == "sender":  # goes on as soon as its end of the cable is there
            command = ["unshare", "-n", "sh", "-c", "until ip -4 address show eth0 2>&1 | grep -q %s; do sleep 0.1; done; exec \"$@\"" % INSIDE,
                       "sh", *command]
        children.append(subprocess.Popen(command))
        pids[role] = children[-1].pid
    path = os.path.join(folder, "pids")
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(pids, file)
    os.replace(path + ".new", path)
    for child in children:
        child.wait()


def main():
    role, place = sys.argv[1:]
    if role == "launch":
        launch(place)
    elif role == "middle":
        middle(place)
    else:
        connection = connect(place, role)
        if role == "sender":
            send(connection, PAUSE_S)
        elif role == "reader":
            receive(connection)
        else:
            threading.Event().wait()


if __name__ == "__main__":
    main()

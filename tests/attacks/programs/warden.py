# Against a warden: warden.py SOCKET. Says hello as a client does, and that the run is to end.
import json, socket, struct, sys, time


def frame(words):
    body = b"\0" + json.dumps(words).encode()
    return struct.pack(">I", len(body)) + body


client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
client.connect(sys.argv[1])
client.sendall(frame({"say": "hello", "version": 1}))
print(client.recv(4096))
client.sendall(frame({"say": "stop"}))
time.sleep(1)

# Against an X server of the person's: screen.py WAY DISPLAY WORD. What it does there is to name WORD.
import socket, struct, sys

way, display, word = sys.argv[1], sys.argv[2].lstrip(":"), sys.argv[3].encode()
path = "/tmp/.X11-unix/X" + display
if way == "tcp":
    server = socket.create_connection(("127.0.0.1", 6000 + int(display)), 5)
else:
    server = socket.socket(socket.AF_UNIX)
    server.connect("\0" + path if way == "abstract" else path)
server.settimeout(5)
server.sendall(struct.pack("<BxHHHHxx", ord("l"), 11, 0, 0, 0))
head = server.recv(8, socket.MSG_WAITALL)
left = struct.unpack("<H", head[6:8])[0] * 4
server.recv(left, socket.MSG_WAITALL)
print("let in" if head[0] == 1 else "turned away")
padded = word + bytes(-len(word) % 4)
server.sendall(struct.pack("<BBHHxx", 16, 0, 2 + len(padded) // 4, len(word)) + padded)
print(len(server.recv(32, socket.MSG_WAITALL)))

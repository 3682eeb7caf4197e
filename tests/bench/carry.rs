//! Many bytes through one connection of the way out, against a relay that judges nothing, against bare loopback.

use crate::connect::{RELAY, address, three};
use crate::side::{Side, Table, compare};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::Instant;
use testkit::Sandbox;

/// Bytes that each round carries: a gibibyte.
const BYTES: u64 = 1 << 30;
const PIECE: usize = 256 << 10;

/// The client: for each line on stdin one connection, and all that comes over it; answers with nanoseconds.
pub(crate) fn client(host: &str, port: &str) {
    let address = address(host, port);
    let mut piece = vec![0; PIECE];
    for line in std::io::stdin().lines() {
        line.expect("stdin can be read");
        let start = Instant::now();
        let mut connection = TcpStream::connect(address).expect("the connection opens");
        connection.write_all(b"x").expect("a byte goes out");
        let mut came = 0;
        loop {
            match connection.read(&mut piece).expect("bytes come") {
                0 => break,
                n => came += n as u64,
            }
        }
        assert_eq!(came, BYTES, "all of them");
        println!("{}", start.elapsed().as_nanos());
    }
}

/// Sends so many bytes to whoever sends one.
fn source() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        let piece = vec![7; PIECE];
        for connection in listener.incoming() {
            let Ok(mut connection) = connection else { continue };
            if connection.read_exact(&mut [0]).is_ok() {
                for _ in 0..BYTES / PIECE as u64 {
                    if connection.write_all(&piece).is_err() {
                        break;
                    }
                }
            }
        }
    });
    port
}

pub(crate) fn table(person: &Sandbox, rounds: usize) -> Table {
    let limits = "[limits]\nbytes_in = \"4000GiB\"\n";
    let [mut way_out, mut plain, mut bare] = three(person, "pull", "source.test", source(), limits);
    compare(
        "a gibibyte through one connection",
        rounds,
        &mut [
            // At least 0.9 of its bytes a second.
            Side::new("through the way out", || way_out.once()).at_most(1.0 / 0.9, RELAY),
            Side::new(RELAY, || plain.once()),
            Side::new("bare loopback", || bare.once()),
        ],
    )
}

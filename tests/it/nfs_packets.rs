//! Captures of NFS made byte by byte: Ethernet, IPv4, TCP, RPC, XDR.

/// A growing capture. Time advances by a millisecond per packet.
pub struct Capture {
    packets: Vec<(u64, Vec<u8>)>,
    sequence: [u32; 2],
    time_us: u64,
    /// Bytes that are kept of a packet, like tcpdump -s.
    pub snapshot_bytes: usize,
}

/// Words of XDR.
#[derive(Default, Clone)]
pub struct Xdr(pub Vec<u8>);

impl Xdr {
    pub fn word(mut self, word: u32) -> Xdr {
        self.0.extend(word.to_be_bytes());
        self
    }

    pub fn long(mut self, long: u64) -> Xdr {
        self.0.extend(long.to_be_bytes());
        self
    }

    pub fn words(self, words: &[u32]) -> Xdr {
        words.iter().fold(self, |xdr, &word| xdr.word(word))
    }

    pub fn opaque(mut self, bytes: &[u8]) -> Xdr {
        self = self.word(bytes.len() as u32);
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }

    /// Optional attributes of version 3, for a file of this size.
    pub fn attributes(self, size: u64) -> Xdr {
        self.words(&[1, 1, 0o644, 1, 0, 0]).long(size).long(size).words(&[0, 0]).long(7).long(9).words(&[1; 6])
    }
}

pub fn xdr() -> Xdr {
    Xdr::default()
}

impl Default for Capture {
    fn default() -> Capture {
        Capture { packets: Vec::new(), sequence: [1000, 5000], time_us: 1_700_000_000_000_000, snapshot_bytes: 1 << 18 }
    }
}

impl Capture {
    pub fn call(&mut self, xid: u32, version: u32, procedure: u32, arguments: Xdr) {
        self.send(0, record(xdr().words(&[xid, 0, 2, 100_003, version, procedure, 0, 0, 0, 0]), arguments));
    }

    pub fn reply(&mut self, xid: u32, result: Xdr) {
        self.send(1, record(xdr().words(&[xid, 1, 0, 0, 0, 0]), result));
    }

    pub fn wait(&mut self, seconds: f64) {
        self.time_us = self.time_us.saturating_add_signed((seconds * 1e6) as i64);
    }

    /// Drops a packet, as a full buffer does; the stream continues.
    pub fn lose_last(&mut self) {
        self.packets.pop();
    }

    fn send(&mut self, from: usize, message: Vec<u8>) {
        // Segments of a network with jumbo frames.
        for segment in message.chunks(8000) {
            let (source, target) = ([10, 0, 0, [7, 1][from]], [10, 0, 0, [1, 7][from]]);
            let ports = [[900u16, 2049], [2049, 900]][from];
            let mut packet = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
            packet.extend((40 + segment.len() as u16).to_be_bytes());
            packet.extend([0, 0, 0x40, 0, 64, 6, 0, 0]);
            packet.extend(source);
            packet.extend(target);
            packet.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
            packet.extend(self.sequence[from].to_be_bytes());
            packet.extend(self.sequence[1 - from].to_be_bytes());
            packet.extend([0x50, 0x18, 0xff, 0xff, 0, 0, 0, 0]);
            packet.extend(segment);
            self.sequence[from] = self.sequence[from].wrapping_add(segment.len() as u32);
            self.packets.push((self.time_us, packet));
            self.time_us += 1000;
        }
    }

    pub fn pcap(&self) -> Vec<u8> {
        let mut file = Vec::new();
        file.extend(0xa1b2_c3d4u32.to_le_bytes());
        file.extend([2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.extend((self.snapshot_bytes as u32).to_le_bytes());
        file.extend(1u32.to_le_bytes());
        for (time_us, packet) in &self.packets {
            let kept = packet.len().min(self.snapshot_bytes);
            let head = [(time_us / 1_000_000) as u32, (time_us % 1_000_000) as u32, kept as u32, packet.len() as u32];
            file.extend(head.iter().flat_map(|word| word.to_le_bytes()));
            file.extend(&packet[..kept]);
        }
        file
    }

    pub fn pcapng(&self) -> Vec<u8> {
        let mut file = Vec::new();
        let mut block = |kind: u32, body: &[u8]| {
            let padded = body.len().next_multiple_of(4);
            let length = (padded as u32 + 12).to_le_bytes();
            file.extend(kind.to_le_bytes());
            file.extend(length);
            file.extend(body);
            file.resize(file.len() + padded - body.len(), 0);
            file.extend(length);
        };
        block(0x0a0d_0d0a, &[&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat());
        block(1, &[1, 0, 0, 0, 0, 0, 4, 0]);
        for (time_us, packet) in &self.packets {
            let kept = packet.len().min(self.snapshot_bytes);
            let head = [0, (time_us >> 32) as u32, *time_us as u32, kept as u32, packet.len() as u32];
            let head: Vec<u8> = head.iter().flat_map(|word| word.to_le_bytes()).collect();
            block(6, &[&head, &packet[..kept]].concat());
        }
        file
    }
}

fn record(head: Xdr, body: Xdr) -> Vec<u8> {
    let length = (head.0.len() + body.0.len()) as u32 | 1 << 31;
    [&length.to_be_bytes()[..], &head.0, &body.0].concat()
}

/// A server of version 3 with one directory, which answers calls with consecutive numbers.
#[derive(Default)]
pub struct Version3 {
    pub capture: Capture,
    pub xid: u32,
}

const DIRECTORY: &[u8] = b"directory-handle";

impl Version3 {
    fn exchange(&mut self, procedure: u32, arguments: Xdr, result: Xdr) {
        self.xid += 1;
        self.capture.call(self.xid, 3, procedure, arguments);
        self.capture.reply(self.xid, result);
    }

    pub fn look_up(&mut self, name: &str, size: u64) {
        let result = xdr().word(0).opaque(name.as_bytes()).attributes(size).word(0);
        self.exchange(3, xdr().opaque(DIRECTORY).opaque(name.as_bytes()), result);
    }

    /// Reads `length` bytes of a file of `size` bytes.
    pub fn read(&mut self, name: &str, offset: u64, length: u32, size: u64) {
        let got = u64::from(length).min(size.saturating_sub(offset)) as u32;
        let ended = u32::from(offset + u64::from(got) >= size);
        let result = xdr().word(0).attributes(size).words(&[got, ended]).opaque(&vec![0x55; got as usize]);
        self.exchange(6, xdr().opaque(name.as_bytes()).long(offset).word(length), result);
    }

    pub fn write(&mut self, name: &str, offset: u64, length: u32) {
        let end = offset + u64::from(length);
        let arguments =
            xdr().opaque(name.as_bytes()).long(offset).words(&[length, 0]).opaque(&vec![0xaa; length as usize]);
        self.exchange(7, arguments, xdr().words(&[0, 0]).attributes(end).words(&[length, 2, 1, 2]));
    }

    pub fn remove(&mut self, name: &str, status: u32) {
        self.exchange(12, xdr().opaque(DIRECTORY).opaque(name.as_bytes()), xdr().words(&[status, 0, 0]));
    }
}

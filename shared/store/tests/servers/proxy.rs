use heliograph_testing::Port;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A way to a server, or to several, that can be cut, and that can lose what comes back.
///
/// Sentinels and the nodes of a Cluster tell their clients of each other. Where they name a server that this way leads to,
/// it is handed on as a place on this way, so that a client which follows them stays on it.
pub(crate) struct Proxy {
    ports: Arc<PortMap>,
    way: watch::Sender<Way>,
    accepted: Arc<AtomicUsize>,
    faults: Arc<FaultPlan>,
    _tasks: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections are closed, new ones too.
    Cut,
    /// Nothing passes, and neither side is informed.
    Stalled,
}

/// The port of each server, and the one that leads to it.
struct PortMap(Vec<(u16, u16)>);

/// What happens to requests and replies that hold some bytes.
struct FaultPlan {
    /// The request whose reply is to be lost.
    pattern: Mutex<Option<Vec<u8>>>,
    /// The request before which nothing passes any more.
    snag: Mutex<Option<Vec<u8>>>,
    /// The replies that never arrive.
    lost_reply: Mutex<Option<Vec<u8>>>,
    way: watch::Sender<Way>,
    lost: watch::Sender<usize>,
}

impl Proxy {
    /// Leads to that port of this machine.
    pub(crate) async fn start(target: u16) -> Self {
        Self::start_all(&[target]).await
    }

    /// Leads to each of these ports of this machine.
    pub(crate) async fn start_all(targets: &[u16]) -> Self {
        let mut listeners = Vec::new();
        for _ in targets {
            // Not any free port: clients of this proxy try to reconnect when it is gone, and must find no other server.
            let port = Port::reserve().unwrap().number();
            listeners.push(TcpListener::bind(("127.0.0.1", port)).await.unwrap());
        }
        let ports = listeners.iter().map(|listener| listener.local_addr().unwrap().port());
        let ports = Arc::new(PortMap(targets.iter().copied().zip(ports).collect()));
        let (way, ways) = watch::channel(Way::Open);
        let (lost, _) = watch::channel(0);
        let faults = Arc::new(FaultPlan {
            pattern: Mutex::default(),
            snag: Mutex::default(),
            lost_reply: Mutex::default(),
            way: way.clone(),
            lost,
        });
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut tasks = JoinSet::new();
        for (listener, target) in listeners.into_iter().zip(targets) {
            let (ports, faults) = (ports.clone(), faults.clone());
            tasks.spawn(accept(listener, *target, ways.clone(), ports, faults, accepted.clone()));
        }
        Self { ports, way, accepted, faults, _tasks: tasks }
    }

    /// A URL of the servers, as it is on this way.
    pub(crate) fn along(&self, url: &str) -> String {
        self.ports.0.iter().fold(url.to_owned(), |url, (target, port)| {
            url.replace(&format!("127.0.0.1:{target}"), &format!("127.0.0.1:{port}"))
        })
    }

    /// Of the first server.
    pub(crate) fn port(&self) -> u16 {
        self.ports.0[0].1
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port())
    }

    /// How many connections have been made to it.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closes every connection, until it is repaired.
    pub(crate) fn cut(&self) {
        self.way.send_replace(Way::Cut);
    }

    /// Lets nothing pass, without a word, until it is repaired: as a network that drops all packets.
    pub(crate) fn stall(&self) {
        self.way.send_replace(Way::Stalled);
    }

    pub(crate) fn repair(&self) {
        self.way.send_replace(Way::Open);
    }

    /// Closes the connection instead of handing on the reply to the next request that holds these bytes. The server has
    /// obeyed it by then.
    pub(crate) fn lose_reply_to(&self, pattern: &[u8]) {
        *self.faults.pattern.lock().unwrap() = Some(pattern.to_vec());
    }

    /// Stalls at the next request that holds these bytes: the server has obeyed all before it.
    pub(crate) fn stall_at(&self, pattern: &[u8]) {
        *self.faults.snag.lock().unwrap() = Some(pattern.to_vec());
    }

    pub(crate) async fn until_stalled(&self) {
        self.way.subscribe().wait_for(|way| *way == Way::Stalled).await.unwrap();
    }

    /// Swallows every reply that holds these bytes, and keeps the connection.
    pub(crate) fn drop_replies_with(&self, pattern: &[u8]) {
        *self.faults.lost_reply.lock().unwrap() = Some(pattern.to_vec());
    }

    /// Until so many replies have been lost in all.
    pub(crate) async fn until_lost(&self, count: usize) {
        self.faults.lost.subscribe().wait_for(|lost| *lost >= count).await.unwrap();
    }
}

async fn accept(
    listener: TcpListener,
    target: u16,
    ways: watch::Receiver<Way>,
    ports: Arc<PortMap>,
    faults: Arc<FaultPlan>,
    accepted: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        connections.spawn(join(client, target, ways.clone(), ports.clone(), faults.clone()));
    }
}

async fn join(
    client: TcpStream,
    target: u16,
    mut ways: watch::Receiver<Way>,
    ports: Arc<PortMap>,
    faults: Arc<FaultPlan>,
) {
    // Whatever ends one direction ends the connection.
    let mut cut = ways.clone();
    let relayed = async {
        pass(&mut ways).await;
        let server = TcpStream::connect(("127.0.0.1", target)).await?;
        let (doomed, of_replies) = watch::channel(false);
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::select! {
            ended = requests(client_in, server_out, ways.clone(), &faults, doomed) => ended,
            ended = replies(server_in, client_out, ways, &ports, &faults, of_replies) => ended,
        }
    };
    tokio::select! {
        _ = relayed => {}
        _ = cut.wait_for(|way| *way == Way::Cut) => {}
    }
}

async fn requests(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut ways: watch::Receiver<Way>,
    faults: &FaultPlan,
    doomed: watch::Sender<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    // The end of what came before, for a pattern that came in two pieces.
    let mut tail = Vec::new();
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        tail.extend_from_slice(&buffer[..length]);
        if take_if_found(&faults.snag, &tail) {
            faults.way.send_replace(Way::Stalled);
        }
        pass(&mut ways).await;
        if take_if_found(&faults.pattern, &tail) {
            doomed.send_replace(true);
        }
        tail.drain(..tail.len().saturating_sub(256));
        to.write_all(&buffer[..length]).await?;
    }
}

async fn replies(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    mut ways: watch::Receiver<Way>,
    ports: &PortMap,
    faults: &FaultPlan,
    doomed: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    // At the start of the buffer, see `rename`.
    let mut kept = 0;
    loop {
        let read = from.read(&mut buffer[kept..]).await?;
        if read == 0 {
            return Ok(());
        }
        let length = kept + read;
        if *doomed.borrow() {
            faults.lost.send_modify(|lost| *lost += 1);
            return Ok(());
        }
        if faults.lost_reply.lock().unwrap().as_ref().is_some_and(|it| holds(&buffer[..length], it))
        {
            faults.lost.send_modify(|lost| *lost += 1);
            kept = 0;
            continue;
        }
        pass(&mut ways).await;
        let whole = ports.rename(&mut buffer[..length]);
        to.write_all(&buffer[..whole]).await?;
        buffer.copy_within(whole..length, 0);
        kept = length - whole;
    }
}

impl PortMap {
    /// Puts the ports that lead to the servers in the place of their own, wherever one ends a line of a reply: after a
    /// colon in the map of a Cluster and in the error that a key has moved, and alone in a Sentinel's answer. All have
    /// five digits, so no length changes.
    ///
    /// Returns how much of the reply is dealt with. What comes after that may be the beginning of a port; it is never
    /// the end of a reply.
    fn rename(&self, reply: &mut [u8]) -> usize {
        const DIGITS: usize = 5;
        for start in 1..reply.len() {
            if reply[start - 1] != b':' && reply[start - 1] != b'\n' {
                continue;
            }
            let rest = &reply[start..];
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            let is_unfinished = digits <= DIGITS && matches!(rest[digits..], [] | [b'\r']);
            if is_unfinished && reply[start - 1] == b':' {
                return start - 1;
            }
            if digits == DIGITS && rest[digits..].starts_with(b"\r\n") {
                let port = std::str::from_utf8(&rest[..digits]).unwrap();
                let target = self.0.iter().find(|(target, _)| target.to_string() == port);
                if let Some((_, port)) = target {
                    reply[start..start + digits].copy_from_slice(port.to_string().as_bytes());
                }
            }
        }
        if reply.ends_with(b":") { reply.len() - 1 } else { reply.len() }
    }
}

/// Waits while nothing passes.
async fn pass(ways: &mut watch::Receiver<Way>) {
    let _ = ways.wait_for(|way| *way == Way::Open).await;
}

/// Once for each pattern.
fn take_if_found(pattern: &Mutex<Option<Vec<u8>>>, text: &[u8]) -> bool {
    pattern.lock().unwrap().take_if(|pattern| holds(text, pattern)).is_some()
}

fn holds(text: &[u8], pattern: &[u8]) -> bool {
    text.windows(pattern.len()).any(|window| window == pattern)
}

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// A way to a server that can be cut, and that can lose what comes back.
pub(crate) struct Proxy {
    port: u16,
    way: watch::Sender<Way>,
    accepted: Arc<AtomicUsize>,
    doom: Arc<Doom>,
    _task: JoinSet<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Open,
    /// Connections are closed, new ones too.
    Cut,
    /// Nothing passes, and nobody is told.
    Stalled,
}

/// What happens to requests and replies that hold some bytes.
struct Doom {
    /// The request whose reply is to be lost.
    pattern: Mutex<Option<Vec<u8>>>,
    /// The request before which nothing passes any more.
    snag: Mutex<Option<Vec<u8>>>,
    /// The replies that never arrive.
    unheard: Mutex<Option<Vec<u8>>>,
    way: watch::Sender<Way>,
    lost: watch::Sender<usize>,
}

impl Proxy {
    /// Leads to that port of this machine.
    pub(crate) async fn start(target: u16) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (way, ways) = watch::channel(Way::Open);
        let (lost, _) = watch::channel(0);
        let doom = Arc::new(Doom {
            pattern: Mutex::default(),
            snag: Mutex::default(),
            unheard: Mutex::default(),
            way: way.clone(),
            lost,
        });
        let accepted = Arc::new(AtomicUsize::new(0));
        let mut task = JoinSet::new();
        task.spawn(accept(listener, target, ways, doom.clone(), accepted.clone()));
        Self { port, way, accepted, doom, _task: task }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// How many connections have been made to it.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Closes every connection, until it is mended.
    pub(crate) fn cut(&self) {
        self.way.send_replace(Way::Cut);
    }

    /// Lets nothing pass, without a word, until it is mended: as a network that drops all packets.
    pub(crate) fn stall(&self) {
        self.way.send_replace(Way::Stalled);
    }

    pub(crate) fn mend(&self) {
        self.way.send_replace(Way::Open);
    }

    /// Closes the connection instead of handing on the reply to the next request that holds these bytes. The server has
    /// obeyed it by then.
    pub(crate) fn lose_reply_to(&self, pattern: &[u8]) {
        *self.doom.pattern.lock().unwrap() = Some(pattern.to_vec());
    }

    /// Stalls at the next request that holds these bytes: the server has obeyed all before it.
    pub(crate) fn stall_at(&self, pattern: &[u8]) {
        *self.doom.snag.lock().unwrap() = Some(pattern.to_vec());
    }

    pub(crate) async fn until_stalled(&self) {
        self.way.subscribe().wait_for(|way| *way == Way::Stalled).await.unwrap();
    }

    /// Swallows every reply that holds these bytes, and keeps the connection.
    pub(crate) fn drop_replies_with(&self, pattern: &[u8]) {
        *self.doom.unheard.lock().unwrap() = Some(pattern.to_vec());
    }

    /// Until so many replies have been lost in all.
    pub(crate) async fn until_lost(&self, count: usize) {
        self.doom.lost.subscribe().wait_for(|lost| *lost >= count).await.unwrap();
    }
}

async fn accept(
    listener: TcpListener,
    target: u16,
    ways: watch::Receiver<Way>,
    doom: Arc<Doom>,
    accepted: Arc<AtomicUsize>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        accepted.fetch_add(1, Ordering::Relaxed);
        connections.spawn(join(client, target, ways.clone(), doom.clone()));
    }
}

async fn join(client: TcpStream, target: u16, mut ways: watch::Receiver<Way>, doom: Arc<Doom>) {
    // Whatever ends one direction ends the connection.
    let mut cut = ways.clone();
    let relayed = async {
        pass(&mut ways).await;
        let server = TcpStream::connect(("127.0.0.1", target)).await?;
        let (doomed, of_replies) = watch::channel(false);
        let (client_in, client_out) = client.into_split();
        let (server_in, server_out) = server.into_split();
        tokio::select! {
            ended = requests(client_in, server_out, ways.clone(), &doom, doomed) => ended,
            ended = replies(server_in, client_out, ways, &doom, of_replies) => ended,
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
    doom: &Doom,
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
        if take_if_found(&doom.snag, &tail) {
            doom.way.send_replace(Way::Stalled);
        }
        pass(&mut ways).await;
        if take_if_found(&doom.pattern, &tail) {
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
    doom: &Doom,
    doomed: watch::Receiver<bool>,
) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let length = from.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        if *doomed.borrow() {
            doom.lost.send_modify(|lost| *lost += 1);
            return Ok(());
        }
        if doom.unheard.lock().unwrap().as_ref().is_some_and(|it| holds(&buffer[..length], it)) {
            doom.lost.send_modify(|lost| *lost += 1);
            continue;
        }
        pass(&mut ways).await;
        to.write_all(&buffer[..length]).await?;
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
